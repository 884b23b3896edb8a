// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// warmPool has the pre-allocated addresses of a network for one generation of its spec.
// Claims take from it without a lock and without a request. The network's allocator closes
// it and takes what is left. A claim that took an address before that, or at the same time,
// has an address that the entry covers: the close finds it missing.
type warmPool struct {
	generation int64
	// v4 and v6 are the addresses; nil for a family that the network lacks.
	v4, v6 *ipam.WarmPool
	// addressless counts the claims without addresses.
	addressless entrants
	// closed says that nothing is handed out any more.
	closed atomic.Bool
	// takes counts the claims served since the network's allocator looked last.
	takes atomic.Int64
	// low is the number of addresses below which the pool asks for more; asked says that it
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

// take serves a claim: all of it or nothing. stranded is an address that it took for nothing
// and could not put back; the network's allocator must free it.
func (w *warmPool) take(net *network.Network, v4, v6 AddressRequest) (a4, a6, stranded netip.Addr, ok bool) {
	if w.generation != net.Generation || v4.Static.IsValid() || v6.Static.IsValid() {
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

// takeFrom takes one address if it is wanted; a family that the network lacks has none.
func takeFrom(p *ipam.WarmPool, r AddressRequest) (netip.Addr, bool) {
	if !r.Dynamic {
		return netip.Addr{}, true
	}
	if p == nil {
		return netip.Addr{}, false
	}
	return p.Take()
}

// putBack puts an address back that was taken for nothing. It returns the address if the
// pool was closed meanwhile: the close has not found it.
func (w *warmPool) putBack(a netip.Addr) (stranded netip.Addr) {
	if !a.IsValid() {
		return stranded
	}
	there := w.put(a)
	if there && !w.closed.Load() || there && !w.remove(a) {
		return stranded // it is there, or the close has found it
	}
	return a
}

// wantsMore reports, once, that few addresses are left.
func (w *warmPool) wantsMore() bool {
	low := int(w.low.Load())
	few := w.v4 != nil && w.v4.Len() <= low || w.v6 != nil && w.v6.Len() <= low
	return few && w.asked.CompareAndSwap(false, true)
}

// setTarget sets when the pool asks for more: when a quarter of its target is left.
func (w *warmPool) setTarget(target int) {
	w.low.Store(int64(target / 4))
	w.asked.Store(false)
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

// len counts the addresses.
func (w *warmPool) len() int {
	n := 0
	for _, p := range w.families() {
		n += p.Len()
	}
	return n
}

// remove takes that address out. It reports false when it is not there: a claim has it.
func (w *warmPool) remove(a netip.Addr) bool {
	p := w.of(a)
	return p != nil && p.Remove(a)
}

// put adds an address, unless the pool is full.
func (w *warmPool) put(a netip.Addr) bool {
	p := w.of(a)
	return p != nil && p.Put(a)
}

// shrink takes out addresses of each family, those first that are there the longest, until no
// more than limit are left. It returns them.
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

// close ends the pool. It returns the addresses that no claim has taken, and how many claims
// without addresses were served and not counted yet.
func (w *warmPool) close() (left []netip.Addr, addressless int) {
	w.closed.Store(true)
	return w.shrink(0), w.addressless.close()
}

// contents returns what is in the pool, for a plan.
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

// warmContents is a warm pool at one moment. Claims go on taking from it.
type warmContents struct {
	// open says that there is a pool, of that generation of the spec.
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

// withdrawal is what has to leave the warm pool before a write gives it back. A claim may be
// faster: only what was found there is given back.
type withdrawal struct {
	// close ends the whole pool.
	close bool
	// addrs are single addresses.
	addrs []netip.Addr
	// shrink says that no more than limit addresses of a family may be left.
	shrink bool
	limit  int
}

func (w *withdrawal) isEmpty() bool { return !w.close && !w.shrink && len(w.addrs) == 0 }

// entrants counts those who need the node's entry and no address, until it is closed.
type entrants struct{ n atomic.Int64 }

// closedEntrants is the count when no one may enter any more.
const closedEntrants = -1 << 62

// enter counts one, unless it is closed.
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

// count returns how many have entered since it was called last.
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

// close lets no one enter any more, and returns the count.
func (e *entrants) close() int { return int(max(e.n.Swap(closedEntrants), 0)) }

// The warm target, in addresses and shares.
const (
	// minWarm is how many addresses a network in use has at least, if any.
	minWarm = 4
	// scarce is how many free addresses there must be for each node.
	scarce = 8
	// share is the part of its fair share of the free addresses that a node
	// pre-allocates at most, as 1/share: all nodes together leave three quarters.
	share = 4
	// decaySteps is into how many steps Config.WarmPoolIdleTimeout is divided: with each step
	// without a claim the target is halved, after the last it is 0.
	decaySteps = 5
)

// demand is how many addresses of one network were claimed of late. The warm target is twice
// that, and less with time.
type demand struct {
	// peak is the target when the last claim came.
	peak int
	last time.Time
	// claimed counts the claims since then. They come one at a time, and each is seen alone,
	// so only together do they show how many addresses the node needs.
	claimed int
	since   time.Time
}

// target is the warm target now. idleTimeout is how long an unused warm pool is kept.
func (d demand) target(now time.Time, idleTimeout time.Duration) int {
	step := int(now.Sub(d.last) * decaySteps / max(idleTimeout, 1))
	if d.peak == 0 || step >= decaySteps {
		return 0
	}
	return max(d.peak>>max(step, 0), minWarm)
}

// after returns the demand after some claims. Those of two decay steps count as one demand:
// what the warm pool served is counted up to a step later.
func (d demand) after(claims int, now time.Time, idleTimeout time.Duration) demand {
	if claims == 0 {
		return d
	}
	peak := d.target(now, idleTimeout)
	if now.Sub(d.since) >= 2*idleTimeout/decaySteps {
		d.claimed, d.since = 0, now
	}
	d.claimed += claims
	d.peak, d.last = max(2*d.claimed, peak, minWarm), now
	return d
}

// allowance is how many addresses one node may pre-allocate of a pool, with its own warm ones
// among the free: none when there are fewer than 8 for each node, so that no address of a
// full pool waits for a Pod elsewhere.
func allowance(free int64, nodes int) int {
	n := int64(max(nodes, 1))
	if free < scarce*n {
		return 0
	}
	return int(min(free/(share*n), 1<<20))
}
