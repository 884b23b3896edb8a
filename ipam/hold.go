// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"iter"
	"math/bits"
	"net/netip"
	"sync/atomic"
)

// Hold is a bounded set of addresses of one family that are ready to be taken.
// Any goroutine may call its methods: it is made of words and compare-and-swap,
// without a mutex, and nothing allocates but All's iteration. Some goroutine
// always gets on: a lost race means that another one won.
//
// A Hold does not look for duplicates: who puts an address owns it, so that it
// cannot be there. The zero Hold has room for none.
//
// An address lies in a slot. Each slot is in one of three states: empty, ready,
// or owned by the one goroutine that switched its empty or ready bit off.
type Hold struct {
	groups []group
	// cursor is where the next search for a ready or an empty slot starts. Both
	// go round, so that addresses are taken in the order in which they were put.
	// Goroutines at the same time may set it back by a few slots.
	cursor [kinds]atomic.Uint64
}

// NewHold returns an empty Hold with room for size addresses, rounded up to a
// multiple of 64. With a size below 1 there is room for none.
func NewHold(size int) *Hold {
	h := &Hold{groups: make([]group, (max(size, 0)+groupSize-1)/groupSize)}
	for i := range h.groups {
		h.groups[i].bits[empty].Store(^uint64(0))
	}
	return h
}

// Put adds an address. It reports false when the Hold is full, or when the
// address is invalid or has a zone: a slot has no room for names.
func (h *Hold) Put(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	g, bit, ok := h.win(empty)
	if ok {
		g.slots[bit].store(a)
		g.give(ready, bit)
	}
	return ok
}

// Take takes an address out: of those that are there about the one put longest
// ago, and exactly that one as long as nobody calls Remove or calls at the same
// time. It reports false when it finds none.
func (h *Hold) Take() (netip.Addr, bool) {
	g, bit, ok := h.win(ready)
	if !ok {
		return netip.Addr{}, false
	}
	a := g.slots[bit].load()
	g.give(empty, bit)
	return a, true
}

// Remove takes this address out. It reports false when it is not there; to the
// others it is as if it had been taken.
func (h *Hold) Remove(a netip.Addr) bool {
	for i := range h.groups {
		if h.groups[i].remove(a) {
			return true
		}
	}
	return false
}

// Len returns how many addresses are there.
func (h *Hold) Len() int {
	n := 0
	for i := range h.groups {
		n += bits.OnesCount64(h.groups[i].bits[ready].Load())
	}
	return n
}

// Cap returns how many addresses there is room for.
func (h *Hold) Cap() int { return len(h.groups) * groupSize }

// All yields the addresses that are there, in no order. It takes none: each was
// there at some moment of the iteration, and may have been taken since.
func (h *Hold) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for i := range h.groups {
			if !h.groups[i].each(yield) {
				return
			}
		}
	}
}

// win makes the caller the owner of a slot that was of that kind: the first one
// from the cursor on, round to just before it.
func (h *Hold) win(kind int) (*group, int, bool) {
	n := uint64(len(h.groups))
	from := h.cursor[kind].Load()
	first, mask := from/groupSize, ^uint64(0)<<(from%groupSize)
	for i := range n + min(n, 1) {
		switch i {
		case 0:
		case n: // the group that the search started in, up to the cursor
			mask = ^(^uint64(0) << (from % groupSize))
		default:
			mask = ^uint64(0)
		}
		at := (first + i) % n
		if bit, ok := h.groups[at].win(kind, mask); ok {
			h.cursor[kind].Store((at*groupSize + uint64(bit) + 1) % (n * groupSize))
			return &h.groups[at], bit, true
		}
	}
	return nil, 0, false
}
