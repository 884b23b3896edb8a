// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/internal/groupcommit"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// reconcileAtOnce limits the networks that are reconciled at a time, because all nodes of a
// cluster may start together.
const reconcileAtOnce = 16

// The retry policy. After maxFailures failures in a row, callers get status.ErrTryAgain. The
// bound of a random wait grows from minBackoff to maxBackoff. Writers that conflict spread out
// over spread times the duration of an attempt, and the bound does not double before
// constantRetries conflicts in a row. Measured with 50 writers: less spread causes more
// conflicts, and doubling at once leaves the last writers waiting when all others are done.
const (
	maxFailures     = 4
	minBackoff      = 5 * time.Millisecond
	maxBackoff      = 2 * time.Second
	spread          = 4
	constantRetries = 6
)

// Allocator claims and releases the addresses of one node. Its methods may be
// called from any goroutine.
type Allocator struct {
	store Store
	cfg   Config
	retry groupcommit.Policy
	stats counters

	// ctx ends with Close; wg counts the writers.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	// mu guards changes of networks. Only Close takes the lock of a network with it. The map
	// is replaced, never changed in place, because a claim that a warm pool serves reads it
	// without a lock.
	mu       sync.Mutex
	networks atomic.Pointer[map[network.Key]*networkAllocator]
	// versions are the newest resourceVersions of the networks.
	versions status.Versions
	// refills are networks whose warm pools have few addresses left.
	refills chan *networkAllocator
	// closing means that no address is pre-allocated any more.
	closing atomic.Bool
}

// New returns an Allocator for one node. A node must not have two at a time; the node daemon's
// lock on its journal ensures that.
func New(store Store, cfg Config) *Allocator {
	ctx, cancel := context.WithCancel(context.Background())
	a := &Allocator{
		store: store, cfg: cfg.withDefaults(),
		ctx: ctx, stop: cancel,
		refills: make(chan *networkAllocator, 64),
	}
	a.retry = groupcommit.Policy{
		IsConflict: func(err error) bool { return errors.Is(err, status.ErrConflict) },
		MinBackoff: minBackoff, MaxBackoff: maxBackoff, Spread: spread, ConstantRetries: constantRetries,
		MaxFailures: maxFailures, Rand: a.cfg.Rand,
	}
	a.networks.Store(&map[network.Key]*networkAllocator{})
	a.wg.Go(a.refill)
	return a
}

// refill triggers a write for each network that requests a refill of its warm pool.
func (a *Allocator) refill() {
	for {
		select {
		case n := <-a.refills:
			n.mu.Lock()
			n.queue.Trigger()
			n.mu.Unlock()
		case <-a.ctx.Done():
			return
		}
	}
}

// requestRefill requests a refill of a warm pool. If the queue is full, the next claim requests
// it again.
func (a *Allocator) requestRefill(n *networkAllocator, w *warmPool) {
	select {
	case a.refills <- n:
	default:
		w.asked.Store(false)
	}
}

// Close stops all writers and waits for them. Waiting callers get ErrClosed.
func (a *Allocator) Close() {
	a.stop()
	a.mu.Lock()
	for _, n := range *a.networks.Load() {
		n.close()
	}
	a.mu.Unlock()
	a.wg.Wait()
}

// find returns the allocator of a network, or nil.
func (a *Allocator) find(key network.Key) *networkAllocator { return (*a.networks.Load())[key] }

// open returns the allocator of a network, and creates it if it does not exist.
func (a *Allocator) open(key network.Key) *networkAllocator {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.find(key); n != nil {
		return n
	}
	n := newNetworkAllocator(a, key)
	networks := maps.Clone(*a.networks.Load())
	networks[key] = n
	a.networks.Store(&networks)
	return n
}

// remove removes the allocator of a network that is gone.
func (a *Allocator) remove(n *networkAllocator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.find(n.key) == n {
		networks := maps.Clone(*a.networks.Load())
		delete(networks, n.key)
		a.networks.Store(&networks)
	}
}

// with calls f with the allocator of a network, locked. It does not block calls for other
// networks.
func (a *Allocator) with(key network.Key, f func(*networkAllocator)) {
	for {
		n := a.find(key)
		if n == nil {
			n = a.open(key)
		}
		if n.ifOpen(f) {
			return
		}
		// The network is gone, and its allocator is no longer in the map.
	}
}

// Claim claims one address per requested family, all or none. If no family is requested, it
// only ensures that the node has an entry in the network. It takes the addresses from the warm
// pool, without an API request, or claims them with the network's next write. When ctx ends
// first, the claimed addresses are freed.
//
// The errors are ErrExhausted, ErrTaken, ErrOutside, ErrNoSubnet, ErrDeleting, ErrSubnetInUse,
// ErrClosed, status.ErrNotFound, the error in the network's spec (the object's Invalid), and
// status.ErrTryAgain with its cause if a later attempt may succeed. The last one is also
// returned if the subnet is no longer that of net, because the address would get the previous
// mask and routes.
func (a *Allocator) Claim(ctx context.Context, net *network.Network, v4, v6 AddressRequest) (a4, a6 netip.Addr, err error) {
	key := network.KeyOf(net)
	if n := a.find(key); n != nil {
		if a4, a6, ok := n.takeWarm(net, v4, v6); ok {
			a.stats.fromWarmPool.Add(1)
			return a4, a6, nil
		}
	}
	begin := time.Now()
	a4, a6, err = a.claim(ctx, &claim{net: net, v4: v4, v6: v6, since: begin})
	a.stats.count(err)
	a.cfg.ObserveClaim(time.Since(begin), err)
	return a4, a6, err
}

// claim queues a claim for the network's next write and waits for its result.
func (a *Allocator) claim(ctx context.Context, c *claim) (a4, a6 netip.Addr, err error) {
	var queue *groupcommit.Queue[request]
	var r *groupcommit.Request[request]
	a.with(network.KeyOf(c.net), func(n *networkAllocator) {
		if a.ctx.Err() == nil {
			queue, r = n.queue, n.queue.Add(request{claim: c})
		}
	})
	switch {
	case r == nil:
		err = ErrClosed
	case queue.Wait(ctx, r):
		err = r.Err()
	case a.ctx.Err() != nil:
		err = ErrClosed
	default:
		err = fmt.Errorf("claim address: %w: %w", status.ErrTryAgain, context.Cause(ctx))
	}
	if err != nil {
		return a4, a6, fmt.Errorf("network %v: %w", c.net.Ref, err)
	}
	for _, addr := range c.addrs {
		if addr.Is4() {
			a4 = addr
		} else {
			a6 = addr
		}
	}
	return a4, a6, nil
}

// Quarantine takes an address out of use that came from Claim, because another machine on the
// network has it. No dynamic claim gets the address for quarantineTime; the node's entry covers
// it, marked as quarantined. It reports false if too many addresses are in quarantine already:
// then the address gets a cooldown, as after Discard. It makes no API request.
//
// The address stays in the node's own entry, so that nodes do not write each other's entries,
// and the quarantine ends when the node is removed. A restart of the daemon ends it too: the
// next claim of the address probes the network again.
func (a *Allocator) Quarantine(net *network.Network, addr netip.Addr) (quarantined bool) {
	a.with(network.KeyOf(net), func(n *networkAllocator) { quarantined = n.quarantine(addr) })
	return quarantined
}

// MarkPublished records that the DanmEp of a claim exists; owner is the DanmEp's name. It is
// called once per claim, and does not block.
func (a *Allocator) MarkPublished(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) {
		n.local.publish(owner, status.Valid(a4, a6))
		n.changed()
	})
}

// await waits until the condition holds that prepare returns; nil means no wait. prepare is
// called with the network locked, and may change its local state.
func (a *Allocator) await(ctx context.Context, verb string, key network.Key, prepare func(*networkAllocator) *condition) error {
	var queue *groupcommit.Queue[request]
	var r *groupcommit.Request[request]
	var err error
	a.with(key, func(n *networkAllocator) {
		switch c := prepare(n); {
		case c == nil:
		case a.ctx.Err() != nil:
			err = ErrClosed
		default:
			queue, r = n.queue, n.add(c)
		}
	})
	if r != nil {
		err = a.wait(ctx, queue, r)
	}
	if err != nil {
		return fmt.Errorf("%s addresses of network %v: %w", verb, key.Ref, err)
	}
	return nil
}

// wait waits for the answer to a request.
func (a *Allocator) wait(ctx context.Context, queue *groupcommit.Queue[request], r *groupcommit.Request[request]) error {
	switch {
	case queue.Wait(ctx, r):
		return r.Err()
	case a.ctx.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", status.ErrTryAgain, context.Cause(ctx))
}

// CollectGarbage frees the bits that neither an entry nor a DanmEp covers, and returns
// how many.
func (a *Allocator) CollectGarbage(ctx context.Context, key network.Key) (int64, error) {
	c := &condition{fresh: true, collect: true, holds: func(*localState) bool { return true }}
	if err := a.await(ctx, "collect", key, func(*networkAllocator) *condition { return c }); err != nil {
		return 0, err
	}
	return c.collected, nil
}

// ObserveVersion records the resourceVersion of a watch event for a network. It does not block.
// If this node has warm, cooling or quarantined addresses there, it reads the object soon: other
// nodes may need them, or the network may be in deletion. A version older than a previous one
// means that the cluster's state was rolled back.
func (a *Allocator) ObserveVersion(key network.Key, resourceVersion string) {
	behind, back := a.versions.ObserveWatch(key, resourceVersion)
	n := a.find(key)
	if n == nil && back {
		n = a.open(key)
	}
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observeVersion(behind, back)
}

// NetworkDeleted records a watch event for the deletion of a network.
func (a *Allocator) NetworkDeleted(key network.Key) {
	a.versions.Forget(key)
	if n := a.find(key); n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.queue.Trigger()
	}
}

// DanmEpMissing records that a DanmEp of this node is gone which this node has not deleted: the
// cluster's state was rolled back. The node's entry covers its addresses again, and the node
// reports the rollback.
func (a *Allocator) DanmEpMissing(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) { n.danmEpMissing(owner, status.Valid(a4, a6)) })
}

// ReportToRecovery triggers this node's report to the recovery of a network, which is due even
// if the node uses no address there.
func (a *Allocator) ReportToRecovery(key network.Key) {
	a.with(key, func(n *networkAllocator) { n.queue.Trigger() })
}

// Resume takes over the journal of a former incarnation: the node's attachments, and the last
// arguments of Config.JournalSeq if they are of this Node's UID. It is called once, before all
// other methods, and makes no API request.
func (a *Allocator) Resume(uses []Use, seqs map[network.Key]int64) {
	for _, u := range uses {
		a.with(u.Key, func(n *networkAllocator) { n.local.resume(u) })
	}
	for key, seq := range seqs {
		a.with(key, func(n *networkAllocator) { n.local.entry.journalled = seq })
	}
}

// ReconcileEntries compares the node's entries in these networks with the uses from Resume and
// with the node's own DanmEps, frees all other addresses, and fences writes of a former
// incarnation that are still in flight. It ignores networks that are gone.
//
// A write of the former incarnation to a network without an entry cannot be fenced. It may be
// applied until the API server's request timeout (a minute). A second call after that frees its
// addresses.
func (a *Allocator) ReconcileEntries(ctx context.Context, keys ...network.Key) error {
	return atOnce(keys, func(key network.Key) error {
		return a.await(ctx, "reconcile", key, func(n *networkAllocator) *condition {
			settled := func(l *localState) bool { return l.verified && !l.needsWrite() }
			return &condition{fresh: true, recheck: n.local.has(orphan), holds: settled}
		})
	})
}

// atOnce calls f for each element, for a limited number at a time.
func atOnce[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, reconcileAtOnce)
	var wg sync.WaitGroup
	for i, x := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(x)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// counters are the counters of Stats.
type counters struct {
	fromWarmPool, committed, exhausted atomic.Int64
}

// count counts a claim that the warm pool did not serve.
func (c *counters) count(err error) {
	switch {
	case err == nil:
		c.committed.Add(1)
	case errors.Is(err, ErrExhausted):
		c.exhausted.Add(1)
	}
}

// Stats returns the current state of the allocator.
func (a *Allocator) Stats() Stats {
	s := Stats{
		FromWarmPool: a.stats.fromWarmPool.Load(), Committed: a.stats.committed.Load(), Exhausted: a.stats.exhausted.Load(),
	}
	for _, n := range *a.networks.Load() {
		warm, cooling, quarantined := n.counts()
		s.Warm += warm
		s.Cooling += cooling
		s.Quarantined += quarantined
		if warm+cooling+quarantined > 0 {
			s.Networks++
		}
	}
	return s
}
