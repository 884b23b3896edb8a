// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/internal/groupcommit"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

const (
	// rereadEvery is how often a node with warm addresses reads an object that changes.
	rereadEvery = 5 * time.Second
	// maxRetryDelay is how long a network's allocator waits at most after a failure before it
	// retries without a request.
	maxRetryDelay = 30 * time.Second
	// quarantineTime is how long an address is kept from Pods that another machine on the
	// network has.
	quarantineTime = time.Hour
)

// networkAllocator handles the claims and releases of one network. All waiting requests become
// one write (see commit.go).
type networkAllocator struct {
	a     *Allocator
	key   network.Key
	queue *groupcommit.Queue[request]

	// warm is the warm pool; nil while no address may be handed out of it. It is replaced
	// with mu locked only.
	warm atomic.Pointer[warmPool]

	mu    sync.Mutex
	local localState
	// closed means that the network is gone.
	closed bool
	// lostWrite is the resourceVersion of a write without a response that may still be applied;
	// empty if there is none.
	lostWrite string
	// failures counts how often in a row the writer has failed, for the retry delay.
	failures int
	// retry has the object read again when the timer fires.
	retry bool
	// objectMoved means that the object has changed since readAt, when it was last read.
	objectMoved bool
	readAt      time.Time
	wakeUp      wakeUp

	demand demand
	// allowed limits the warm target; the last plan has set it.
	allowed int
	// room4 and room6 are how many more addresses may go into quarantine; the last plan has
	// set them.
	room4, room6 int
	reclaim      reclaimSeen
}

// request is a queued claim, or a condition of the local state that a caller waits for.
type request struct {
	claim     *claim
	condition *condition
}

// condition is a condition of the local state that a caller waits for.
type condition struct {
	holds func(*localState) bool
	// fresh requires a plan that was made after the request was queued.
	fresh bool
	// collect requests garbage collection in that plan.
	collect   bool
	collected int64
	// recheck requests a check whether orphans are still on an interface.
	recheck bool
}

// claimsOf returns the claims among the requests.
func claimsOf(requests []*groupcommit.Request[request]) []*claim {
	claims := make([]*claim, 0, len(requests))
	for _, r := range requests {
		if r.Value.claim != nil {
			claims = append(claims, r.Value.claim)
		}
	}
	return claims
}

// wakeUp is a timer that can be set to an earlier time, but not to a later one. Its methods must
// be called with the owner's lock held.
type wakeUp struct {
	timer *time.Timer
	due   time.Time
}

// in schedules a call of f, unless an earlier one is due. f must call its argument with the lock
// held, and do nothing if it reports that another call has replaced this one.
func (w *wakeUp) in(after time.Duration, f func(counts func() bool)) {
	due := time.Now().Add(after)
	if w.timer != nil && !due.Before(w.due) {
		return
	}
	w.stop()
	w.due = due
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		f(func() bool {
			if w.timer != t {
				return false // another call has replaced this one
			}
			w.timer = nil
			return true
		})
	})
	w.timer = t
}

func (w *wakeUp) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func newNetworkAllocator(a *Allocator, key network.Key) *networkAllocator {
	n := &networkAllocator{a: a, key: key, local: newLocalState()}
	n.queue = groupcommit.New[request](a.ctx, groupcommit.Config{
		Policy: a.retry, Commit: n.commit, Idle: n.idle, FailureError: n.failureError, Failed: n.failed, Go: a.wg.Go,
	})
	return n
}

func (n *networkAllocator) report(err error) {
	n.a.cfg.Report(fmt.Errorf("network %v: %w", n.key.Ref, err))
}

// ifOpen calls f with the network locked, unless the network is gone. It reports whether it
// called f.
func (n *networkAllocator) ifOpen(f func(*networkAllocator)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.countAddressless()
	f(n)
	return true
}

// add queues a condition, unless it holds already. It returns nil then. The caller holds n.mu.
func (n *networkAllocator) add(c *condition) *groupcommit.Request[request] {
	if !c.fresh && c.holds(&n.local) {
		return nil
	}
	return n.queue.Add(request{condition: c})
}

// idle implements groupcommit.Config.Idle.
func (n *networkAllocator) idle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures = 0
	n.countAddressless()
	if n.hasSlack() {
		n.tendIn(n.a.cfg.FlushDelay)
	}
	n.schedule(time.Now())
}

// failureError implements groupcommit.Config.FailureError.
func (n *networkAllocator) failureError(cause error) error {
	if n.a.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", status.ErrTryAgain, cause)
}

// failed implements groupcommit.Config.Failed. It schedules a retry of pending changes.
func (n *networkAllocator) failed(due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retry = n.retry || due // idle of an earlier writer may reset failures later
	if due || n.local.needsWrite() {
		n.tendIn(n.a.retry.Jitter(time.Second, maxRetryDelay, n.failures) + time.Second/2)
		n.failures++
	}
}

// changed must be called after a change of the local state. It triggers a write if one is
// needed. The caller holds n.mu.
func (n *networkAllocator) changed() {
	if n.local.needsWrite() {
		n.queue.Trigger()
	}
	if n.hasSlack() {
		n.tendIn(n.a.cfg.FlushDelay)
	}
	n.schedule(time.Now())
}

func (n *networkAllocator) hasSlack() bool { return n.local.hasSlack(n.warm.Load() != nil) }

// tendIn schedules a call of tend, unless an earlier one is due. The caller holds n.mu.
func (n *networkAllocator) tendIn(after time.Duration) {
	if n.a.ctx.Err() != nil {
		return
	}
	n.wakeUp.in(after, func(counts func() bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if counts() {
			n.tend(time.Now())
		}
	})
}

// schedule schedules a call of tend for the next expiry. The caller holds n.mu.
func (n *networkAllocator) schedule(now time.Time) {
	for _, x := range []expiries{n.local.cooldown, n.local.quarantine} {
		if len(x) > 0 {
			n.tendIn(x[0].until.Sub(now))
		}
	}
	if n.warm.Load() != nil {
		n.tendIn(n.a.cfg.WarmPoolIdleTimeout / decaySteps)
	}
	if n.objectMoved && !n.rereadDue(now) {
		n.tendIn(n.readAt.Add(rereadEvery).Sub(now))
	}
}

// tend handles expired timers: addresses whose cooldown has ended enter the warm pool or are
// freed; an unused warm pool is closed, and one below its target is refilled. It triggers a
// write if one is due. The caller holds n.mu.
func (n *networkAllocator) tend(now time.Time) {
	if n.closed {
		return
	}
	n.countAddressless()
	n.measureDemand(0, now)
	w := n.warm.Load()
	for _, a := range n.local.cooldown.expire(&n.local, cooling, now) {
		if w != nil && w.of(a) != nil && w.of(a).Len() < n.warmTarget(now) && w.put(a) {
			n.local.set(a, warm)
			continue
		}
		n.local.set(a, freeing)
	}
	for _, a := range n.local.quarantine.expire(&n.local, quarantined, now) {
		n.local.set(a, freeing)
	}
	if w != nil && n.warmTarget(now) == 0 {
		n.closeWarmPool()
	}
	if n.retry || n.failures > 0 || n.rereadDue(now) || n.hasSlack() || n.local.needsWrite() || n.needsRefill(now) {
		n.retry = false
		n.queue.Trigger()
	}
	n.schedule(now)
}

// needsRefill reports whether the warm pool has half of its target or less, so that the next plan
// refills it. No claim has requested that yet, because all were served.
func (n *networkAllocator) needsRefill(now time.Time) bool {
	w, target := n.warm.Load(), n.warmTarget(now)
	if w == nil || target == 0 {
		return false
	}
	return slices.ContainsFunc(w.families(), func(p *ipam.WarmPool) bool { return p.Len() <= target/2 })
}

// rereadDue reports whether it is time to read an object that has changed.
func (n *networkAllocator) rereadDue(now time.Time) bool {
	return n.objectMoved && now.Sub(n.readAt) >= rereadEvery
}

// observeVersion implements Allocator.ObserveVersion. behind means that the version is older than
// a known one, back that it is older than one of the watch. The caller holds n.mu.
func (n *networkAllocator) observeVersion(behind, back bool) {
	if back {
		n.queue.Trigger()
		return
	}
	if !behind && n.warm.Load() == nil && !n.local.awaitsExpiry() {
		return
	}
	n.objectMoved = true
	now := time.Now()
	if n.rereadDue(now) {
		n.queue.Trigger()
		return
	}
	n.schedule(now)
}

// danmEpMissing implements Allocator.DanmEpMissing. The caller holds n.mu.
func (n *networkAllocator) danmEpMissing(owner string, addrs []netip.Addr) {
	unexpected := len(addrs) == 0
	for _, addr := range n.local.owned(owner, addrs) {
		if n.local.uses[addr].state == published {
			n.local.set(addr, claimed)
			unexpected = true
		}
	}
	if !unexpected {
		return // a recovery has already covered the addresses
	}
	n.local.danmEpMissing = true
	n.queue.Trigger()
}

// quarantine implements Allocator.Quarantine. The caller holds n.mu.
func (n *networkAllocator) quarantine(addr netip.Addr) bool {
	if !n.local.unpublished(addr) {
		return false
	}
	room := &n.room4
	if addr.Is6() {
		room = &n.room6
	}
	if *room <= 0 {
		n.local.discard(status.Valid(addr, netip.Addr{}), n.cooldownEnd())
		n.changed()
		return false
	}
	*room--
	n.local.putIntoQuarantine(addr, time.Now().Add(quarantineTime))
	n.queue.Trigger() // for the mark in the entry
	n.schedule(time.Now())
	return true
}

// cooldownEnd returns when the cooldown of an address ends that is released now; zero means no
// cooldown.
func (n *networkAllocator) cooldownEnd() time.Time {
	if n.a.cfg.Cooldown == 0 {
		return time.Time{}
	}
	return time.Now().Add(n.a.cfg.Cooldown)
}

// close stops the timer and the warm pool, for Allocator.Close.
func (n *networkAllocator) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.countAddressless() // a commit that is under way keeps the entry for them
	n.warm.Store(nil)
	n.wakeUp.stop()
}
