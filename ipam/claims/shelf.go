// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"sync/atomic"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// shelf is what a desk keeps ready for one generation of its network: callers
// take from it without a lock and without a request. The desk closes it by
// putting another in its place and emptying this one. Who took before that, or
// at the same time, has an address that the entry covers: closing finds it gone.
type shelf struct {
	generation int64
	// v4 and v6 are the holds; nil for a family that the network lacks.
	v4, v6 *ipam.WarmPool
	// door is for interfaces without addresses.
	door door
	// takes counts the callers served since the desk looked.
	takes atomic.Int64
	// low is how many addresses are few; asked is set once the desk was told.
	low   atomic.Int64
	asked atomic.Bool
}

func newShelf(n *network.Network, size int) *shelf {
	s := &shelf{generation: n.Generation}
	if n.V4 != nil {
		s.v4 = ipam.NewWarmPool(size)
	}
	if n.V6 != nil {
		s.v6 = ipam.NewWarmPool(size)
	}
	return s
}

func (s *shelf) of(a netip.Addr) *ipam.WarmPool {
	if a.Is4() {
		return s.v4
	}
	return s.v6
}

// holds are those of the shelf.
func (s *shelf) holds() []*ipam.WarmPool {
	holds := make([]*ipam.WarmPool, 0, 2)
	for _, h := range [...]*ipam.WarmPool{s.v4, s.v6} {
		if h != nil {
			holds = append(holds, h)
		}
	}
	return holds
}

// remove takes an address off the shelf. It reports false when it is not there:
// then somebody has it.
func (s *shelf) remove(a netip.Addr) bool {
	h := s.of(a)
	return h != nil && h.Remove(a)
}

// put puts an address on the shelf, unless that is full.
func (s *shelf) put(a netip.Addr) bool {
	h := s.of(a)
	return h != nil && h.Put(a)
}

// short reports whether one of the holds has few addresses left.
func (s *shelf) short() bool {
	low := int(s.low.Load())
	return s.v4 != nil && s.v4.Len() <= low || s.v6 != nil && s.v6.Len() <= low
}

// takeFrom takes one address if it is wanted; a hold that is not there has none.
func takeFrom(h *ipam.WarmPool, w Want) (netip.Addr, bool) {
	if !w.Dynamic {
		return netip.Addr{}, true
	}
	if h == nil {
		return netip.Addr{}, false
	}
	return h.Take()
}

// fromShelf serves a claim from the hold, all of it or nothing.
func (d *desk) fromShelf(net *network.Network, v4, v6 Want) (a4, a6 netip.Addr, ok bool) {
	s := d.shelf.Load()
	if s == nil || s.generation != net.Generation || v4.Static.IsValid() || v6.Static.IsValid() {
		return a4, a6, false
	}
	if !d.a.cfg.Usable() {
		return a4, a6, false
	}
	if !v4.Dynamic && !v6.Dynamic {
		return a4, a6, s.door.enter()
	}
	a4, ok = takeFrom(s.v4, v4)
	if ok {
		if a6, ok = takeFrom(s.v6, v6); !ok {
			d.putBack(s, a4)
			a4 = netip.Addr{}
		}
	}
	if ok {
		s.takes.Add(1)
	}
	if s.short() && s.asked.CompareAndSwap(false, true) {
		d.a.wake(d)
	}
	return a4, a6, ok
}

// putBack puts an address back that was taken in vain. If the shelf was closed
// meanwhile, its desk has not found the address and must be told.
func (d *desk) putBack(s *shelf, a netip.Addr) {
	if !a.IsValid() {
		return
	}
	there := s.put(a)
	if there && d.shelf.Load() == s {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !there || s.remove(a) {
		d.book.set(a, freeing)
		d.dirty = true
		d.poke()
	}
}

// door counts those who need the node's entry and no address, until it closes.
type door struct{ n atomic.Int64 }

// closed is what the count is when nobody may enter any more.
const closed = -1 << 62

// enter counts one, unless the door is closed.
func (o *door) enter() bool {
	for {
		n := o.n.Load()
		if n < 0 {
			return false
		}
		if o.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// count returns how many have entered since it was asked last.
func (o *door) count() int {
	for {
		n := o.n.Load()
		if n < 0 {
			return 0
		}
		if o.n.CompareAndSwap(n, 0) {
			return int(n)
		}
	}
}

// close closes the door and returns the count.
func (o *door) close() int {
	return int(max(o.n.Swap(closed), 0))
}
