// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"
)

// filledWarmPool has room for 64 addresses, and n addresses from the first one on.
func filledWarmPool(tb testing.TB, n int, first netip.Addr) *WarmPool {
	tb.Helper()
	const size = 64
	h := NewWarmPool(size)
	for range n {
		if !h.Put(first) {
			tb.Fatalf("no room for %d of %d", n, size)
		}
		first = first.Next()
	}
	return h
}

// The path of every Pod's address allocates nothing.
func TestWarmPoolAllocatesNoMemory(t *testing.T) {
	for _, first := range []string{"10.0.0.1", "fd00::1"} {
		h := filledWarmPool(t, 40, addr(first))
		got := testing.AllocsPerRun(100, func() {
			a, ok := h.Take()
			if !ok || !h.Put(a) || !h.Remove(a) || !h.Put(a) || h.Len() != 40 {
				t.Error("an address was lost")
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", first, got)
		}
	}
}

// BenchmarkWarmPool: an address taken from a hold and put back, by one goroutine
// and by as many as there are processors; and one removed by name, the last of
// a full group, and put back.
func BenchmarkWarmPool(b *testing.B) {
	for _, family := range []struct{ name, first string }{{"v4", "10.0.0.1"}, {"v6", "fd00::1"}} {
		b.Run(family.name+"/take+put", func(b *testing.B) {
			h := filledWarmPool(b, 32, addr(family.first))
			b.ReportAllocs()
			for b.Loop() {
				a, _ := h.Take()
				h.Put(a)
			}
		})
		b.Run(family.name+"/take+put/parallel", func(b *testing.B) {
			h := filledWarmPool(b, 32, addr(family.first))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a, ok := h.Take(); ok {
						h.Put(a)
					}
				}
			})
		})
		b.Run(family.name+"/remove+put", func(b *testing.B) {
			h := filledWarmPool(b, 63, addr("fd01::"))
			last := addr(family.first)
			h.Put(last)
			b.ReportAllocs()
			for b.Loop() {
				h.Remove(last)
				h.Put(last)
			}
		})
	}
}
