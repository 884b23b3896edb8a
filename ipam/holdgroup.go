// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math/bits"
	"net/netip"
	"sync/atomic"
)

// The kinds of slots that have no owner. One that is of neither kind has one.
const (
	// ready slots have an address to take.
	ready = iota
	// empty slots may be written.
	empty
	kinds
)

// groupSize is how many slots one word has bits for.
const groupSize = 64

// group is the slots of one word per kind.
type group struct {
	bits  [kinds]atomic.Uint64
	slots [groupSize]slot
}

// win makes the caller the owner of the first slot of that kind in mask.
func (g *group) win(kind int, mask uint64) (int, bool) {
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

// give ends the caller's ownership: the slot is of that kind from now on.
func (g *group) give(kind, bit int) { g.bits[kind].Or(1 << bit) }

// remove takes this address out, if it is in the group.
func (g *group) remove(a netip.Addr) bool {
	want := fromAddr(a)
	for left := g.bits[ready].Load(); left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		if !g.slots[bit].seems(want) {
			continue
		}
		if _, won := g.win(ready, 1<<bit); !won {
			continue
		}
		if g.slots[bit].load() == a {
			g.give(empty, bit)
			return true
		}
		g.give(ready, bit) // it was taken, and another one put, just now
	}
	return false
}

// each yields the addresses of the ready slots until yield reports false.
func (g *group) each(yield func(netip.Addr) bool) bool {
	for left := g.bits[ready].Load(); left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		if a, ok := g.peek(bit); ok && !yield(a) {
			return false
		}
	}
	return true
}

// peek reads the address of a slot that others own or may win, if it is ready.
// An address is two words: a new tag says that they may not belong together.
func (g *group) peek(bit int) (netip.Addr, bool) {
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
