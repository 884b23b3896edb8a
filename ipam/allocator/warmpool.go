// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/internal/groupcommit"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// warmPool has the pre-allocated addresses of a network for one generation of its spec.
// Claims take from it without a lock and without an API request. The network's allocator closes
// it and takes the remaining addresses. A claim may take an address before that or at the same
// time: close does not return it then, and the entry still covers it.
type warmPool struct {
	generation int64
	// v4 and v6 are the addresses; nil for a family that the network lacks.
	v4, v6 *ipam.WarmPool
	// addressless counts the claims without addresses.
	addressless entrants
	// closed means that claims must not take addresses any more.
	closed atomic.Bool
	// takes counts the claims served since measureDemand was last called.
	takes atomic.Int64
	// low is the number of addresses at which the pool requests a refill; asked means that it
	// has.
	low   atomic.Int64
	asked atomic.Bool
}

func newWarmPool(n *network.Network, size int) *warmPool {
	w := &warmPool{generation: n.Generation}
	if n.V4 != nil {
		w.v4 = ipam.NewWarmPool(size)
	}
	if n.V6 != nil {
		w.v6 = ipam.NewWarmPool(size)
	}
	return w
}

// takeWarm serves a claim completely from the warm pool, or not at all. It takes no lock, except to
// free a stranded address.
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
	if (v4.Dynamic || v6.Dynamic) && w.serves(net, v4, v6) && w.wantsMore() {
		n.a.requestRefill(n, w)
	}
	return a4, a6, ok
}

// take serves a claim completely, or not at all. stranded is an address that it took although the
// other family had none, and could not put back; the network's allocator must free it.
func (w *warmPool) take(net *network.Network, v4, v6 AddressRequest) (a4, a6, stranded netip.Addr, ok bool) {
	if !w.serves(net, v4, v6) {
		return a4, a6, stranded, false
	}
	if !v4.Dynamic && !v6.Dynamic {
		return a4, a6, stranded, w.addressless.enter()
	}
	a4, ok = takeFrom(w.v4, v4)
	if ok {
		if a6, ok = takeFrom(w.v6, v6); !ok {
			stranded, a4 = w.putBack(a4), netip.Addr{}
		}
	}
	if ok {
		w.takes.Add(1)
	}
	return a4, a6, stranded, ok
}

// serves reports whether the pool serves such claims: of its generation, and without a static address.
func (w *warmPool) serves(net *network.Network, v4, v6 AddressRequest) bool {
	return w.generation == net.Generation && !v4.Static.IsValid() && !v6.Static.IsValid()
}

// takeFrom takes one address if it is requested. It fails for a family that the network lacks.
func takeFrom(p *ipam.WarmPool, r AddressRequest) (netip.Addr, bool) {
	if !r.Dynamic {
		return netip.Addr{}, true
	}
	if p == nil {
		return netip.Addr{}, false
	}
	return p.Take()
}

// putBack puts an address back. It returns the address if the pool was closed meanwhile and close
// has not returned it.
func (w *warmPool) putBack(a netip.Addr) (stranded netip.Addr) {
	if !a.IsValid() {
		return stranded
	}
	there := w.put(a)
	if there && !w.closed.Load() || there && !w.remove(a) {
		return stranded // it is in the pool, or close has returned it
	}
	return a
}

// wantsMore reports, once until setTarget, that few addresses are left.
func (w *warmPool) wantsMore() bool {
	low := int(w.low.Load())
	few := w.v4 != nil && w.v4.Len() <= low || w.v6 != nil && w.v6.Len() <= low
	return few && w.asked.CompareAndSwap(false, true)
}

// of returns the addresses of that one's family, nil if the network lacks it.
func (w *warmPool) of(a netip.Addr) *ipam.WarmPool {
	if a.Is4() {
		return w.v4
	}
	return w.v6
}

// families returns the families that the network has.
func (w *warmPool) families() []*ipam.WarmPool {
	families := make([]*ipam.WarmPool, 0, 2)
	for _, p := range [...]*ipam.WarmPool{w.v4, w.v6} {
		if p != nil {
			families = append(families, p)
		}
	}
	return families
}

// remove takes that address out. It reports false if a claim has taken it.
func (w *warmPool) remove(a netip.Addr) bool {
	p := w.of(a)
	return p != nil && p.Remove(a)
}

// put adds an address, unless the pool is full.
func (w *warmPool) put(a netip.Addr) bool {
	p := w.of(a)
	return p != nil && p.Put(a)
}

// countAddressless adds the attachments without addresses that the warm pool has served to the
// local state. The caller holds n.mu.
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

// contents returns the addresses in the pool, for a plan.
func (w *warmPool) contents() warmContents {
	c := warmContents{open: true, generation: w.generation}
	if w.v4 != nil {
		for a := range w.v4.All() {
			c.v4 = append(c.v4, a)
		}
	}
	if w.v6 != nil {
		for a := range w.v6.All() {
			c.v6 = append(c.v6, a)
		}
	}
	return c
}

// warmContents is a snapshot of a warm pool. Claims may take from the pool meanwhile.
type warmContents struct {
	// open means that there is a pool, for that generation of the spec.
	open       bool
	generation int64
	v4, v6     []netip.Addr
}

// of returns the addresses of that one's family.
func (c *warmContents) of(a netip.Addr) []netip.Addr {
	if a.Is4() {
		return c.v4
	}
	return c.v6
}

// withdraw takes addresses out of the warm pool before a write frees them, and returns those that
// were still there. Claims have taken the others. The caller holds n.mu.
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

// withdrawal says which addresses must be withdrawn from the warm pool before a write frees them.
// Only those are freed that no claim has taken before.
type withdrawal struct {
	// close means the whole pool.
	close bool
	// addrs are single addresses.
	addrs []netip.Addr
	// shrink means that at most limit addresses of each family stay in the pool.
	shrink bool
	limit  int
}

func (w *withdrawal) isEmpty() bool { return !w.close && !w.shrink && len(w.addrs) == 0 }

// shrink takes out addresses of each family, the oldest first, until at most limit are left. It
// returns them.
func (w *warmPool) shrink(limit int) (taken []netip.Addr) {
	for _, p := range w.families() {
		for p.Len() > limit {
			a, ok := p.Take()
			if !ok {
				break
			}
			taken = append(taken, a)
		}
	}
	return taken
}

// closeWarmPool closes the warm pool, and returns the remaining addresses, which have to be freed.
// The caller holds n.mu.
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

// close closes the pool. It returns the addresses that no claim has taken, and the number of
// served claims without addresses that were not counted yet.
func (w *warmPool) close() (left []netip.Addr, addressless int) {
	w.closed.Store(true)
	return w.shrink(0), w.addressless.close()
}

// stockWarmPool adds the addresses to the warm pool that a plan claimed for it, and opens the pool
// if it is closed. The caller holds n.mu.
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

// setTarget sets when the pool requests a refill: when a quarter of its target is left.
func (w *warmPool) setTarget(target int) {
	w.low.Store(int64(target / 4))
	w.asked.Store(false)
}

// measureDemand adds claims to the demand, together with those that the warm pool has served. The
// caller holds n.mu.
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

// counts returns how many addresses are warm, cooling and in quarantine.
func (n *networkAllocator) counts() (warm, cool, quarantined int) {
	if w := n.warm.Load(); w != nil {
		warm = w.len()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return warm, len(n.local.cooldown.current(&n.local, cooling)), len(n.local.inQuarantine())
}

// len counts the addresses.
func (w *warmPool) len() int {
	n := 0
	for _, p := range w.families() {
		n += p.Len()
	}
	return n
}

// releaseWarmPool closes the warm pool, and returns a request that is answered once its addresses
// are freed; nil if there is no address to free.
func (n *networkAllocator) releaseWarmPool() (*groupcommit.Request[request], error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.warm.Load() == nil && !n.local.awaitsExpiry() {
		return nil, nil
	}
	if n.a.ctx.Err() != nil {
		return nil, ErrClosed
	}
	n.closeWarmPool()
	return n.add(&condition{fresh: true, holds: func(l *localState) bool { return !l.needsWrite() }}), nil
}

// entrants counts the claims that need the node's entry and no address, until it is closed.
type entrants struct{ n atomic.Int64 }

// closedEntrants is the count of closed entrants.
const closedEntrants = -1 << 62

// enter counts one claim, unless it is closed.
func (e *entrants) enter() bool {
	for {
		n := e.n.Load()
		if n < 0 {
			return false
		}
		if e.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// count returns the number of claims since the last call.
func (e *entrants) count() int {
	for {
		n := e.n.Load()
		if n < 0 {
			return 0
		}
		if e.n.CompareAndSwap(n, 0) {
			return int(n)
		}
	}
}

// close rejects further claims, and returns the count.
func (e *entrants) close() int { return int(max(e.n.Swap(closedEntrants), 0)) }
