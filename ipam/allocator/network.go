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
	// rereadEvery is how often a node with warm addresses reads an object whose metadata moves.
	rereadEvery = 5 * time.Second
	// maxRetryDelay is how long a network's allocator waits at most after a failure before it
	// tries again by itself.
	maxRetryDelay = 30 * time.Second

	// maxQuarantined limits the addresses of one network and family that a node has in
	// quarantine, and quarantineShare those of all nodes, as a part of the pool: a Pod that
	// answers for every address must not use the pool up.
	maxQuarantined  = 64
	quarantineShare = 4
)

// networkAllocator has the claims and releases of one network. Its requests become one write
// each time (see commit.go).
type networkAllocator struct {
	a     *Allocator
	key   network.Key
	queue *groupcommit.Queue[request]

	// warm is the warm pool; nil while no address may be handed out of it. It is replaced
	// with mu locked only.
	warm atomic.Pointer[warmPool]

	mu    sync.Mutex
	local localState
	// closed says that the network is gone, and its allocator with it.
	closed bool
	// lostWrite is the resourceVersion of a write whose answer was lost and that may still be
	// applied; empty when there is none.
	lostWrite string
	// failures counts the ends of the writer in failure, for the next retry.
	failures int
	// retry has the object read again when the timer fires.
	retry bool
	// objectMoved says that the object has moved since it was read, at readAt.
	objectMoved bool
	readAt      time.Time
	wakeUp      wakeUp

	demand demand
	// allowed limits the warm target, for the pool that was seen last.
	allowed int
	// room4 and room6 are how many more addresses may go into quarantine, for the pool
	// that was seen last.
	room4, room6 int
	reclaim      reclaimSeen
}

// request is what a caller waits for: a claim, or a condition of the local state.
type request struct {
	claim     *claim
	condition *condition
}

// condition is what a caller waits for that has changed the local state.
type condition struct {
	holds func(*localState) bool
	// fresh asks for a plan from an object read after the caller came.
	fresh bool
	// collect asks for garbage collection in that plan.
	collect   bool
	collected int64
	// recheck asks to look again whether orphans are still on an interface.
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

// wakeUp is a timer that can be set to an earlier time, not to a later one. Its owner's lock
// is held for all methods.
type wakeUp struct {
	timer *time.Timer
	due   time.Time
}

// in has f called after a while, if no earlier call is due. f gets a function that reports
// whether the call still counts, to be called with the lock.
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
				return false // another call has taken its place
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

// reclaimSeen is the last reclaim request of a network, and when it was new here: clocks of
// nodes differ.
type reclaimSeen struct{ requested, seen time.Time }

// isActive reports whether a node needs addresses and has requested them not long ago. It
// remembers the request.
func (r *reclaimSeen) isActive(o *status.Object, now time.Time) bool {
	if o.IPAM == nil || o.IPAM.ReclaimRequestTime == nil {
		return false
	}
	if requested := o.IPAM.ReclaimRequestTime.Time; !requested.Equal(r.requested) {
		before := r.requested
		r.requested, r.seen = requested, now
		if before.IsZero() && now.Sub(requested) >= reclaimExpired {
			r.seen = requested
		}
	}
	return now.Sub(r.seen) < reclaimLasts
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

// ifOpen calls f with the network locked, and reports whether the network is not gone.
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

// hasClaims reports whether a claim waits.
func (n *networkAllocator) hasClaims() bool { return len(claimsOf(n.queue.Waiting())) > 0 }

// idle is called when the writer has nothing left to do.
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

// failureError is what those get who wait for a store that fails.
func (n *networkAllocator) failureError(cause error) error {
	if n.a.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", status.ErrTryAgain, cause)
}

// failed retries later what has to be written.
func (n *networkAllocator) failed(due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if due || n.local.needsWrite() {
		n.tendIn(n.a.retry.Jitter(time.Second, maxRetryDelay, n.failures) + time.Second/2)
		n.failures++
	}
}

// changed sees to what has changed in the local state: at once if a write has to follow. The
// caller holds n.mu.
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

// tendIn has the network tended after a while, if not sooner. The caller holds n.mu.
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

// schedule has the network tended when something is next due. The caller holds n.mu.
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

// tend does what time brings: addresses whose cooldown has ended are warm again or freed; a
// warm pool that is unused is freed, and one that fell behind the demand is filled. It has a
// write made if one is due. The caller holds n.mu.
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

// rereadDue reports whether it is time to read an object that has moved.
func (n *networkAllocator) rereadDue(now time.Time) bool {
	return n.objectMoved && now.Sub(n.readAt) >= rereadEvery
}

// observeVersion is Allocator.ObserveVersion, with n.mu locked. behind says that the version is
// older than a known one, back that the watch itself went back.
func (n *networkAllocator) observeVersion(behind, back bool) {
	if back {
		n.queue.Trigger()
		return
	}
	if !behind && n.warm.Load() == nil && len(n.local.cooldown) == 0 && len(n.local.quarantine) == 0 {
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

// danmEpMissing is Allocator.DanmEpMissing, with n.mu locked.
func (n *networkAllocator) danmEpMissing(owner string, addrs []netip.Addr) {
	unexpected := len(addrs) == 0
	for _, addr := range n.local.owned(owner, addrs) {
		if n.local.uses[addr].state == published {
			n.local.set(addr, claimed)
			unexpected = true
		}
	}
	if !unexpected {
		return // a recovery has found that out, and covered the addresses
	}
	n.local.danmEpMissing = true
	n.queue.Trigger()
}

// quarantine is Allocator.Quarantine, with n.mu locked.
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
	n.local.putIntoQuarantine(addr, time.Now().Add(n.a.cfg.Quarantine))
	n.queue.Trigger() // for the mark in the entry
	n.schedule(time.Now())
	return true
}

// cooldownEnd is when the cooldown ends of an address that is released now; zero without a
// cooldown.
func (n *networkAllocator) cooldownEnd() time.Time {
	if n.a.cfg.Cooldown == 0 {
		return time.Time{}
	}
	return time.Now().Add(n.a.cfg.Cooldown)
}

// takeWarm serves a claim from the warm pool: all of it or nothing. It takes no lock, but for
// an address of one family that was taken for nothing.
func (n *networkAllocator) takeWarm(net *network.Network, v4, v6 AddressRequest) (a4, a6 netip.Addr, ok bool) {
	w := n.warm.Load()
	if w == nil || !n.a.cfg.Usable() {
		return a4, a6, false
	}
	a4, a6, stranded, ok := w.take(net, v4, v6)
	if stranded.IsValid() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.local.set(stranded, freeing)
		n.queue.Trigger()
	}
	if w.wantsMore() {
		n.a.requestRefill(n, w)
	}
	return a4, a6, ok
}

// countAddressless counts the attachments without addresses that the warm pool has served. The
// caller holds n.mu.
func (n *networkAllocator) countAddressless() {
	if w := n.warm.Load(); w != nil {
		n.local.addressless += w.addressless.count()
	}
}

func (n *networkAllocator) warmContents() warmContents {
	if w := n.warm.Load(); w != nil {
		return w.contents()
	}
	return warmContents{}
}

// withdraw takes out of the warm pool what a write will give back, and returns what was still
// there. The rest is in use. The caller holds n.mu.
func (n *networkAllocator) withdraw(what withdrawal) []netip.Addr {
	if what.close {
		return n.closeWarmPool()
	}
	w := n.warm.Load()
	var withdrawn []netip.Addr
	for _, a := range what.addrs {
		if w.remove(a) {
			withdrawn = append(withdrawn, a)
		}
	}
	if what.shrink {
		withdrawn = append(withdrawn, w.shrink(what.limit)...)
	}
	for _, a := range withdrawn {
		n.local.set(a, freeing)
	}
	return withdrawn
}

// closeWarmPool closes the warm pool. What is left in it has to be freed. The caller holds
// n.mu.
func (n *networkAllocator) closeWarmPool() []netip.Addr {
	w := n.warm.Swap(nil)
	if w == nil {
		return nil
	}
	left, addressless := w.close()
	n.local.addressless += addressless
	for _, a := range left {
		n.local.set(a, freeing)
	}
	return left
}

// stockWarmPool puts into the warm pool what a plan claimed for it, and opens it if need be.
// The caller holds n.mu.
func (n *networkAllocator) stockWarmPool(p *plan) {
	now := time.Now()
	n.measureDemand(p.served, now)
	n.allowed = p.allowed
	if p.keepWarm && p.entry.Present && n.warm.Load() == nil && n.a.ctx.Err() == nil && !n.a.closing.Load() {
		n.warm.Store(newWarmPool(p.next.Network, n.a.cfg.WarmPoolSize))
	}
	w := n.warm.Load()
	for _, a := range p.stock {
		n.local.set(a, warm)
		if w == nil || !w.put(a) {
			n.local.set(a, freeing)
		}
	}
	for _, a := range p.cool {
		n.local.uses[a] = use{state: claimed}
		n.local.retire(a, n.cooldownEnd())
	}
	if w != nil {
		w.setTarget(p.target)
	}
	n.schedule(now)
}

// measureDemand counts claims as demand, those that the warm pool served too. The caller holds
// n.mu.
func (n *networkAllocator) measureDemand(claims int, now time.Time) {
	if w := n.warm.Load(); w != nil {
		claims += int(w.takes.Swap(0))
	}
	n.demand = n.demand.after(claims, now, n.a.cfg.WarmPoolIdleTimeout)
}

// warmTarget is how many addresses of a family to pre-allocate now.
func (n *networkAllocator) warmTarget(now time.Time) int {
	if n.a.closing.Load() {
		return 0
	}
	return min(n.demand.target(now, n.a.cfg.WarmPoolIdleTimeout), n.allowed)
}

// needsRefill reports whether the warm pool has half of its target, or less: the next plan
// fills it then. Callers were served, so none has asked for it yet.
func (n *networkAllocator) needsRefill(now time.Time) bool {
	w, target := n.warm.Load(), n.warmTarget(now)
	if w == nil || target == 0 {
		return false
	}
	return slices.ContainsFunc(w.families(), func(p *ipam.WarmPool) bool { return p.Len() <= target/2 })
}

// counts returns how many addresses are warm, cooling and in quarantine.
func (n *networkAllocator) counts() (warm, cool, quarantined int) {
	if w := n.warm.Load(); w != nil {
		warm = w.len()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return warm, len(n.local.cooldown.current(&n.local, cooling)), len(n.local.inQuarantine())
}

// releaseWarmPool ends the warm pool, and returns a request that is answered once it is given
// back; nil if there is nothing to give back.
func (n *networkAllocator) releaseWarmPool() (*groupcommit.Request[request], error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.warm.Load() == nil && len(n.local.cooldown) == 0 && len(n.local.quarantine) == 0 {
		return nil, nil
	}
	if n.a.ctx.Err() != nil {
		return nil, ErrClosed
	}
	n.closeWarmPool()
	return n.add(&condition{fresh: true, holds: func(l *localState) bool { return !l.needsWrite() }}), nil
}

// close ends the network's allocator with the Allocator.
func (n *networkAllocator) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warm.Store(nil)
	n.wakeUp.stop()
}
