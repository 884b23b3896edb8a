// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"iter"
	"math/bits"
	"net/netip"
	"sync/atomic"
)

// WarmPool is a bounded set of pre-allocated addresses of one family. It is safe for concurrent use
// and lock-free: it uses atomic words and compare-and-swap, and a lost race means that another
// goroutine has made progress. Only All allocates memory.
//
// A WarmPool does not check for duplicates: the caller of Put owns the address, so that it cannot be
// in the pool. The zero WarmPool has no room.
//
// Each address is in a slot. A slot is empty, ready, or owned by the one goroutine that cleared its
// empty or ready bit.
type WarmPool struct {
	groups []slotGroup
	// cursor is where the next search for a ready or an empty slot starts. Both wrap around, so
	// that addresses are taken in the order in which they were put. Concurrent goroutines may
	// set it back by a few slots.
	cursor [slotKinds]atomic.Uint64
}

// NewWarmPool returns an empty WarmPool with room for size addresses, rounded up to a multiple of 64.
// With a size below 1 it has no room.
func NewWarmPool(size int) *WarmPool {
	w := &WarmPool{groups: make([]slotGroup, (max(size, 0)+groupSize-1)/groupSize)}
	for i := range w.groups {
		w.groups[i].bits[empty].Store(^uint64(0))
	}
	return w
}

// Put adds an address. It reports false if the WarmPool is full, or if the address is invalid or has
// a zone, which a slot cannot store.
func (w *WarmPool) Put(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	g, bit, ok := w.acquireSlot(empty)
	if ok {
		g.slots[bit].store(a)
		g.release(ready, bit)
	}
	return ok
}

// Take takes the oldest address out. After calls of Remove or with concurrent calls, it takes
// approximately the oldest one. It reports false if it finds none.
func (w *WarmPool) Take() (netip.Addr, bool) {
	g, bit, ok := w.acquireSlot(ready)
	if !ok {
		return netip.Addr{}, false
	}
	a := g.slots[bit].load()
	g.release(empty, bit)
	return a, true
}

// Remove takes this address out. It reports false if the address is not there.
func (w *WarmPool) Remove(a netip.Addr) bool {
	for i := range w.groups {
		if w.groups[i].remove(a) {
			return true
		}
	}
	return false
}

// Len returns the number of addresses.
func (w *WarmPool) Len() int {
	n := 0
	for i := range w.groups {
		n += bits.OnesCount64(w.groups[i].bits[ready].Load())
	}
	return n
}

// capacity returns the maximum number of addresses.
func (w *WarmPool) capacity() int { return len(w.groups) * groupSize }

// All yields the addresses, in no particular order, without taking them. Each was there at some time
// during the iteration, and may have been taken since.
func (w *WarmPool) All() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for i := range w.groups {
			if !w.groups[i].each(yield) {
				return
			}
		}
	}
}

// acquireSlot makes the caller the owner of the first slot of that kind from the cursor on, with
// wrap-around.
func (w *WarmPool) acquireSlot(kind int) (*slotGroup, int, bool) {
	n := uint64(len(w.groups))
	from := w.cursor[kind].Load()
	first, mask := from/groupSize, ^uint64(0)<<(from%groupSize)
	for i := range n + min(n, 1) {
		switch i {
		case 0:
		case n: // the group of the start again, up to the cursor
			mask = ^(^uint64(0) << (from % groupSize))
		default:
			mask = ^uint64(0)
		}
		at := (first + i) % n
		if bit, ok := w.groups[at].acquire(kind, mask); ok {
			w.cursor[kind].Store((at*groupSize + uint64(bit) + 1) % (n * groupSize))
			return &w.groups[at], bit, true
		}
	}
	return nil, 0, false
}

// The kinds of slots without an owner. A slot of neither kind has an owner.
const (
	// ready slots have an address.
	ready = iota
	// empty slots have none.
	empty
	slotKinds
)

// groupSize is how many slots one word has bits for.
const groupSize = 64

// slotGroup is the slots of one word per kind.
type slotGroup struct {
	bits  [slotKinds]atomic.Uint64
	slots [groupSize]slot
}

// acquire makes the caller the owner of the first slot of that kind in mask.
func (g *slotGroup) acquire(kind int, mask uint64) (int, bool) {
	for w := &g.bits[kind]; ; {
		old := w.Load()
		if old&mask == 0 {
			return 0, false
		}
		bit := bits.TrailingZeros64(old & mask)
		if w.CompareAndSwap(old, old&^(1<<bit)) {
			return bit, true
		}
	}
}

// release ends the caller's ownership, and gives the slot that kind.
func (g *slotGroup) release(kind, bit int) { g.bits[kind].Or(1 << bit) }

// remove takes this address out, if it is in the group.
func (g *slotGroup) remove(a netip.Addr) bool {
	want := fromAddr(a)
	for left := g.bits[ready].Load(); left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		if !g.slots[bit].mayContain(want) {
			continue
		}
		if _, won := g.acquire(ready, 1<<bit); !won {
			continue
		}
		if g.slots[bit].load() == a {
			g.release(empty, bit)
			return true
		}
		g.release(ready, bit) // it was taken, and another one put, meanwhile
	}
	return false
}

// each yields the addresses of the ready slots until yield reports false.
func (g *slotGroup) each(yield func(netip.Addr) bool) bool {
	for left := g.bits[ready].Load(); left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		if a, ok := g.peek(bit); ok && !yield(a) {
			return false
		}
	}
	return true
}

// peek reads the address of a slot that the caller does not own, if it is ready. An address has two
// words: a changed tag means that they may not belong together.
func (g *slotGroup) peek(bit int) (netip.Addr, bool) {
	for s := &g.slots[bit]; ; {
		tag := s.tag.Load()
		if g.bits[ready].Load()>>bit&1 == 0 {
			return netip.Addr{}, false
		}
		if a := s.load(); s.tag.Load() == tag {
			return a, true
		}
	}
}

// slot has one address. Only its owner writes it; its words are atomic because other goroutines may
// read them at any time.
type slot struct {
	// tag is twice the number of stores, plus 1 for an IPv4 address.
	tag    atomic.Uint64
	hi, lo atomic.Uint64
}

// store writes an address. It writes the tag first: a reader that finds the slot ready and the same
// tag before and after it reads the address has read a complete address.
func (s *slot) store(a netip.Addr) {
	tag := s.tag.Load()&^1 + 2
	if a.Is4() {
		tag |= 1
	}
	s.tag.Store(tag)
	n := fromAddr(a)
	s.hi.Store(n.hi)
	s.lo.Store(n.lo)
}

func (s *slot) load() netip.Addr {
	is4 := s.tag.Load()&1 == 1
	return u128{hi: s.hi.Load(), lo: s.lo.Load()}.addr(is4)
}

// mayContain reports whether the slot has that address. During a concurrent store it may be wrong.
func (s *slot) mayContain(n u128) bool { return s.lo.Load() == n.lo && s.hi.Load() == n.hi }
