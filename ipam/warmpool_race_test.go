// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// registry knows of each address whether somebody has it in hand.
type registry struct {
	addrs  []netip.Addr
	index  map[netip.Addr]int
	inHand []atomic.Bool
}

// newRegistry makes n addresses that differ in both halves, so that half of one
// and half of another is none of them.
func newRegistry(n int) *registry {
	r := &registry{index: map[netip.Addr]int{}, inHand: make([]atomic.Bool, n)}
	for i := range n {
		a := u128{0xfd00<<48 | uint64(i), uint64(i) + 1}.addr(false)
		r.addrs, r.index[a] = append(r.addrs, a), i
	}
	return r
}

// got marks an address as in hand. It was in nobody's before.
func (r *registry) got(t *testing.T, how string, a netip.Addr) {
	t.Helper()
	i, known := r.index[a]
	if !known || r.inHand[i].Swap(true) {
		t.Errorf("%s gave %v: known %v, and in another's hand", how, a, known)
	}
}

// put gives an address to the hold and reports whether it had room.
func (r *registry) put(h *WarmPool, a netip.Addr) bool {
	flag := &r.inHand[r.index[a]]
	flag.Store(false) // whoever takes it may be faster than Put's return
	if h.Put(a) {
		return true
	}
	flag.Store(true)
	return false
}

// Each address is in one goroutine's hand or in the hold, whatever they do, and
// none gets lost: with fewer addresses than slots, and with more.
func TestWarmPoolConcurrentUse(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"Scarce": 5, "AlmostFull": 63, "TooMany": 150} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r := NewWarmPool(128), newRegistry(n)
			if n < 64 {
				h = NewWarmPool(64)
			}
			const hands = 12
			var wg sync.WaitGroup
			left := make([][]netip.Addr, hands)
			for i := range hands {
				var mine []netip.Addr
				for j := i; j < n; j += hands {
					r.got(t, "the start", r.addrs[j])
					mine = append(mine, r.addrs[j])
				}
				wg.Go(func() { left[i] = takeAndPutRandomly(t, h, r, mine, uint64(i)) })
			}
			wg.Wait()
			checkNothingLost(t, h, r, left)
		})
	}
}

// takeAndPutRandomly moves addresses between a hand and the hold, and returns what is left.
func takeAndPutRandomly(t *testing.T, h *WarmPool, r *registry, mine []netip.Addr, seed uint64) []netip.Addr {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	for range 12000 {
		switch do := rnd.IntN(16); {
		case do < 7 && len(mine) > 0:
			if last := len(mine) - 1; r.put(h, mine[last]) {
				mine = mine[:last]
			}
		case do < 12:
			if a, ok := h.Take(); ok {
				r.got(t, "Take", a)
				mine = append(mine, a)
			}
		case do < 15:
			if a := r.addrs[rnd.IntN(len(r.addrs))]; h.Remove(a) {
				r.got(t, "Remove", a)
				mine = append(mine, a)
			}
		default:
			for a := range h.All() {
				if _, known := r.index[a]; !known {
					t.Errorf("All gave %v, which nobody put", a)
				}
			}
		}
	}
	return mine
}

func checkNothingLost(t *testing.T, h *WarmPool, r *registry, left [][]netip.Addr) {
	t.Helper()
	seen := map[netip.Addr]int{}
	for _, hand := range left {
		for _, a := range hand {
			seen[a]++
		}
	}
	for h.Len() > 0 {
		a, ok := h.Take()
		if !ok {
			t.Fatalf("Len is %d, but nothing can be taken", h.Len())
		}
		seen[a]++
	}
	for _, a := range r.addrs {
		if seen[a] != 1 {
			t.Errorf("%v is there %d times at the end", a, seen[a])
		}
	}
	for a := r.addrs[0]; h.Put(a); {
		a = a.Next()
	}
	if h.Len() != h.capacity() {
		t.Errorf("only %d of %d slots can be filled again", h.Len(), h.capacity())
	}
}

// One that is alone with an address finds it, whatever others do to theirs: a
// Take must not fail because the search began behind the address.
func TestWarmPoolFindsTheOnlyAddress(t *testing.T) {
	t.Parallel()
	h, a := NewWarmPool(256), addr("10.0.0.1")
	for i := range 1000 {
		if !h.Put(a) {
			t.Fatalf("round %d: no room", i)
		}
		if i%3 == 0 {
			if !h.Remove(a) {
				t.Fatalf("round %d: not found", i)
			}
			continue
		}
		if got, ok := h.Take(); !ok || got != a {
			t.Fatalf("round %d: got %v, %v", i, got, ok)
		}
	}
}
