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

// reconcileAtOnce limits the networks that are reconciled at a time: all nodes of a cluster
// may be starting together.
const reconcileAtOnce = 16

// Retries: how long the store may fail before those who wait are told to try again, and
// how long one random wait is at most: a bound from minBackoff to maxBackoff. Writers that met spread out over spread times the
// length of an attempt, and the bound does not double before constantRetries conflicts in a
// row. Measured with 50 writers: less spread makes more of them meet, and doubling at once
// leaves the last ones waiting when all others are through.
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

	// mu is for changes of networks; no lock of a network is taken or held with it, but by
	// Close. The map itself is never changed but replaced: a claim that a warm pool serves
	// reads it without a lock.
	mu       sync.Mutex
	networks atomic.Pointer[map[network.Key]*networkAllocator]
	// versions are the newest of the networks as the watch saw them.
	versions status.Versions
	// refills are networks whose warm pools have few addresses left.
	refills chan *networkAllocator
	// closing says that nothing is pre-allocated any more.
	closing atomic.Bool
}

// New returns an Allocator for one node. No two may work for one node at a time: the node
// daemon's lock on its journal prevents that.
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

// refill has the warm pools filled that ask for more.
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

// requestRefill has a warm pool filled soon. If too many ask at once, the next claim asks
// again.
func (a *Allocator) requestRefill(n *networkAllocator, w *warmPool) {
	select {
	case a.refills <- n:
	default:
		w.asked.Store(false)
	}
}

// Close stops all work and waits for its end. Callers that wait get ErrClosed.
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

// open returns the allocator of a network, and makes it if need be.
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

// with calls f with the allocator of a network, locked. A network that is being planned keeps
// no one from the others.
func (a *Allocator) with(key network.Key, f func(*networkAllocator)) {
	for {
		n := a.find(key)
		if n == nil {
			n = a.open(key)
		}
		if n.ifOpen(f) {
			return
		}
		// The network is gone, and its allocator is no more in the map.
	}
}

// Claim covers one address per wanted family with the node's entry, all or
// none; when no family is wanted it puts the entry there. Warm addresses are handed out at
// once, without a request; else it is one write. When ctx ends first, what was claimed is
// given back.
//
// Errors name the network and what to do: ErrExhausted, ErrTaken, ErrOutside,
// ErrNoSubnet, ErrDeleting, ErrSubnetInUse, ErrClosed, status.ErrNotFound, what is
// wrong with the network's spec (the object's Invalid), and status.ErrTryAgain for all that
// time mends, with its cause: also when the subnet is not net's any more, since the address
// would get the former mask and routes.
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

// claim has a claim served by the network's next write.
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

// Discard gives back what Claim gave and no Pod has used. It does not wait for
// the API server: what cannot be written now is retried.
func (a *Allocator) Discard(net *network.Network, a4, a6 netip.Addr) {
	a.with(network.KeyOf(net), func(n *networkAllocator) {
		n.local.discard(status.Valid(a4, a6), n.cooldownEnd())
		n.changed()
	})
}

// Quarantine takes an address out of use that Claim gave and that another machine on the
// network has. No dynamic claim gets it for quarantineTime; the node's entry covers
// it, marked as quarantined. It reports false when too many are in quarantine already:
// the address then cools down as if it was discarded. It makes no request.
//
// The node keeps the address in its own entry, so that it needs to write no other node's,
// and a node that is gone takes its quarantine along. A restart of the daemon ends it:
// the next claim of the address probes the network again.
func (a *Allocator) Quarantine(net *network.Network, addr netip.Addr) (quarantined bool) {
	a.with(network.KeyOf(net), func(n *networkAllocator) { quarantined = n.quarantine(addr) })
	return quarantined
}

// MarkPublished records that the DanmEp of a claim exists; owner is its name. It is
// called once per claim, and returns at once.
func (a *Allocator) MarkPublished(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) {
		n.local.publish(owner, status.Valid(a4, a6))
		n.changed()
	})
}

// ReturnToEntry puts the addresses of an attachment back into the node's entry; after
// it, the DanmEp may go. A second call, and one for addresses that are not this
// node's or of a network that is gone, does nothing.
//
// owner is the name of the attachment's DanmEp. A release may be repeated, even
// from a journal that is behind, long after its address is another Pod's: only
// the owner releases, until Forget.
func (a *Allocator) ReturnToEntry(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	if err := a.awaitDecision(ctx, "return", key); err != nil {
		return err
	}
	return a.await(ctx, "return", key, func(n *networkAllocator) *condition {
		addrs := n.local.owned(owner, status.Valid(a4, a6))
		n.local.returnToEntry(addrs)
		return &condition{holds: func(l *localState) bool { return !l.any(addrs, returning) }}
	})
}

// Free takes an attachment's addresses out of use. It is called when their DanmEp
// is gone, or never was. A dynamic address cools down for a while, covered by the node's
// entry, and is warm or freed then; a static one is freed before Free returns. A second Free
// does nothing, and so does one of addresses that the node's entry does not cover. An
// attachment without addresses needs the entry no more, whether it had a DanmEp or not.
func (a *Allocator) Free(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	if err := a.awaitDecision(ctx, "free", key); err != nil {
		return err
	}
	return a.await(ctx, "free", key, func(n *networkAllocator) *condition {
		addrs := status.Valid(a4, a6)
		if len(addrs) == 0 {
			n.local.endAddressless(owner)
		}
		addrs = n.local.owned(owner, addrs)
		n.local.free(addrs, n.cooldownEnd())
		n.changed()
		return &condition{holds: func(l *localState) bool { return !l.any(addrs, freeing) }}
	})
}

// awaitDecision waits until it is known which of several former owners has an address.
func (a *Allocator) awaitDecision(ctx context.Context, verb string, key network.Key) error {
	return a.await(ctx, verb, key, func(n *networkAllocator) *condition {
		if len(n.local.contenders) == 0 {
			return nil
		}
		return &condition{fresh: true, holds: func(l *localState) bool { return len(l.contenders) == 0 }}
	})
}

// await waits until the condition holds that prepare returns; nil is none. prepare is called
// with the network locked, and may change its local state.
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

// Forget ends the memory of an attachment's release: the attachment is out of the journal,
// and nothing will release it again.
func (a *Allocator) Forget(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) {
		for _, addr := range []netip.Addr{a4, a6, {}} {
			delete(n.local.released, release{owner, addr})
		}
	})
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

// ObserveVersion records that the metadata of a network has moved to that resourceVersion, by
// a watch. It returns at once. If this node keeps addresses there, it reads the object before
// long: other nodes may need them, or the network is being deleted. A version older than one
// seen before means that the cluster's state was restored.
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

// NetworkDeleted records that a network is gone, by a watch.
func (a *Allocator) NetworkDeleted(key network.Key) {
	a.versions.Forget(key)
	if n := a.find(key); n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.queue.Trigger()
	}
}

// DanmEpMissing records that a DanmEp of this node, which had existed, is gone though this
// node has not removed it: older state was restored. Its addresses are covered by
// the node's entry again, and the network recovers.
func (a *Allocator) DanmEpMissing(key network.Key, owner string, a4, a6 netip.Addr) {
	a.with(key, func(n *networkAllocator) { n.danmEpMissing(owner, status.Valid(a4, a6)) })
}

// ReportToRecovery has this node report what it has in use in a network that is recovering,
// even if that is nothing.
func (a *Allocator) ReportToRecovery(key network.Key) {
	a.with(key, func(n *networkAllocator) { n.queue.Trigger() })
}

// Resume takes over what the journal has of a former incarnation: the addresses that this
// node answers for, and what Config.JournalSeq was called with, as far as it is of this Node's
// UID. It is called once, before everything else, and makes no request.
func (a *Allocator) Resume(uses []Use, seqs map[network.Key]int64) {
	for _, u := range uses {
		a.with(u.Key, func(n *networkAllocator) { n.local.resume(u) })
	}
	for key, seq := range seqs {
		a.with(key, func(n *networkAllocator) { n.local.entry.journalled = seq })
	}
}

// ReconcileEntries compares the node's entries in these networks with what Resume got and
// with the node's own DanmEps, frees the rest, and fences writes of a former incarnation that
// are still on their way. Networks that are gone are no error.
//
// A write of the former incarnation that found no entry to conflict with may be applied
// later, as long as the API server works on requests (a minute): a second call
// after that frees what it claimed.
func (a *Allocator) ReconcileEntries(ctx context.Context, keys ...network.Key) error {
	return atOnce(keys, func(key network.Key) error {
		return a.await(ctx, "settle", key, func(n *networkAllocator) *condition {
			settled := func(l *localState) bool { return l.verified && !l.needsWrite() }
			return &condition{fresh: true, recheck: n.local.has(orphan), holds: settled}
		})
	})
}

// atOnce calls f for each, a limited number at a time.
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

// ReleaseWarmPool ends all warm pools and cooldowns, for an orderly shutdown: unused addresses
// are free for other nodes. It waits for the writes, as long as ctx lasts; what they did
// not reach stays in the node's entries, for its next incarnation.
func (a *Allocator) ReleaseWarmPool(ctx context.Context) error {
	a.closing.Store(true)
	var networks []*networkAllocator
	for _, n := range *a.networks.Load() {
		networks = append(networks, n)
	}
	return atOnce(networks, func(n *networkAllocator) error {
		r, err := n.releaseWarmPool()
		if r != nil {
			err = a.wait(ctx, n.queue, r)
		}
		if err != nil {
			return fmt.Errorf("give back addresses of network %v: %w", n.key.Ref, err)
		}
		return nil
	})
}

// counters are the parts of Stats that only grow.
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

// Stats returns the present state of the allocator.
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
