// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWarmPool(t *testing.T) {
	t.Parallel()
	type step struct {
		do, addr string
		want     string
	}
	cases := map[string]struct {
		reason string
		size   int
		steps  []step
		left   []string
	}{
		"Order": {
			reason: "the one put longest ago rested longest",
			size:   64,
			steps: []step{
				{"put", "10.0.0.3", "true"}, {"put", "10.0.0.1", "true"}, {"put", "10.0.0.2", "true"},
				{"take", "", "10.0.0.3"}, {"put", "10.0.0.3", "true"},
				{"take", "", "10.0.0.1"}, {"take", "", "10.0.0.2"}, {"take", "", "10.0.0.3"}, {"take", "", "none"},
			},
		},
		"ByName": {
			reason: "a static claim of a held address, or a give-back, takes this one and leaves the order",
			size:   64,
			steps: []step{
				{"put", "10.0.0.1", "true"}, {"put", "10.0.0.2", "true"}, {"put", "10.0.0.3", "true"},
				{"remove", "10.0.0.2", "true"}, {"remove", "10.0.0.2", "false"}, {"remove", "10.0.0.9", "false"},
				{"take", "", "10.0.0.1"}, {"remove", "10.0.0.1", "false"},
			},
			left: []string{"10.0.0.3"},
		},
		"IPv6": {
			reason: "all 128 bits count",
			size:   1,
			steps: []step{
				{"put", "fd00:1::1", "true"}, {"put", "fd00:2::1", "true"},
				{"remove", "fd00:3::1", "false"}, {"remove", "fd00:2::1", "true"}, {"take", "", "fd00:1::1"},
			},
		},
		"LooksAlike": {
			reason: "an IPv4 address is not the IPv6 address with its bits, nor the mapped one",
			size:   1,
			steps: []step{
				{"put", "::a00:1", "true"}, {"remove", "10.0.0.1", "false"}, {"remove", "::ffff:10.0.0.1", "false"},
				{"put", "::ffff:10.0.0.1", "true"}, {"put", "10.0.0.1", "true"},
				{"take", "", "::a00:1"}, {"take", "", "::ffff:10.0.0.1"}, {"take", "", "10.0.0.1"},
			},
		},
		"NoAddress": {
			reason: "a zone would be lost, and an invalid address found by nobody",
			size:   1,
			steps: []step{
				{"put", "fe80::1%eth0", "false"}, {"put", "", "false"}, {"remove", "", "false"},
				{"put", "fe80::1", "true"}, {"remove", "fe80::1%eth0", "false"},
			},
			left: []string{"fe80::1"},
		},
		"NoRoom": {
			reason: "a node may be told to keep none",
			size:   0,
			steps:  []step{{"put", "10.0.0.1", "false"}, {"take", "", "none"}, {"remove", "10.0.0.1", "false"}},
		},
		"NegativeRoom": {
			reason: "likewise",
			size:   -1,
			steps:  []step{{"put", "10.0.0.1", "false"}, {"take", "", "none"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewWarmPool(tc.size)
			for i, s := range tc.steps {
				if got := doWarmPool(h, s.do, s.addr); got != s.want {
					t.Errorf("%s\nstep %d, %s %s: got %s, want %s", tc.reason, i, s.do, s.addr, got, s.want)
				}
			}
			if diff := cmp.Diff(tc.left, texts(slices.Collect(h.All()))); diff != "" || h.Len() != len(tc.left) {
				t.Errorf("%s\nleft (want, got), Len %d:\n%s", tc.reason, h.Len(), diff)
			}
		})
	}
}

// doWarmPool calls one method and returns its answer as text.
func doWarmPool(h *WarmPool, do, a string) string {
	switch do {
	case "put":
		return fmt.Sprint(h.Put(addr(a)))
	case "remove":
		return fmt.Sprint(h.Remove(addr(a)))
	}
	if got, ok := h.Take(); ok {
		return got.String()
	}
	return "none"
}

func TestWarmPoolSize(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{-64: 0, 0: 0, 1: 64, 64: 64, 65: 128, 1000: 1024} {
		h, a := NewWarmPool(size), addr("fd00::")
		for h.Put(a) {
			a = a.Next()
		}
		if h.capacity() != want || h.Len() != want {
			t.Errorf("NewHold(%d): Cap %d, full with %d, want %d", size, h.capacity(), h.Len(), want)
		}
	}
}

// All must be able to end early, and take nothing.
func TestWarmPoolAllEndsEarly(t *testing.T) {
	t.Parallel()
	h := NewWarmPool(1)
	h.Put(addr("10.0.0.1"))
	h.Put(addr("10.0.0.2"))
	for a := range h.All() {
		if a != addr("10.0.0.1") {
			t.Errorf("got %v first", a)
		}
		break
	}
	if h.Len() != 2 {
		t.Errorf("%d left, want 2", h.Len())
	}
}

// For one goroutine a Hold is a bounded set, and a queue until a Put goes into
// the hole that a Remove left: then no order is promised.
func TestWarmPoolIsAQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := warmPoolModel{h: NewWarmPool(rapid.IntRange(0, 130).Draw(t, "size"))}
		base := rapid.SampledFrom([]string{"10.0.0.0", "fd00::ffff:ffff:ffff:fff0"}).Draw(t, "family")
		m.next = addr(base)
		t.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"put":     m.put,
			"putMany": func(t *rapid.T) { m.many(t, m.put) },
			"take":    m.take,
			"takeAll": func(t *rapid.T) { m.many(t, m.take) },
			"remove":  m.remove,
		})
	})
}

// warmPoolModel is a queue beside a Hold.
type warmPoolModel struct {
	h    *WarmPool
	next netip.Addr
	// queue has the addresses in the order in which they were put; slot is the
	// number of the Put for each.
	queue []netip.Addr
	slot  []int
	// puts counts the Puts; taken is one more than the number of the last to be
	// taken.
	puts, taken int
	// torn says that a Put went into a hole.
	torn bool
}

func (m *warmPoolModel) many(t *rapid.T, f func(*rapid.T)) {
	for range rapid.IntRange(1, 2*groupSize).Draw(t, "n") {
		f(t)
	}
}

func (m *warmPoolModel) put(t *rapid.T) {
	m.next = m.next.Next()
	if ok := m.h.Put(m.next); ok != (len(m.queue) < m.h.capacity()) {
		t.Fatalf("Put: %v with %d of %d", ok, len(m.queue), m.h.capacity())
	} else if !ok {
		return
	}
	m.queue, m.slot = append(m.queue, m.next), append(m.slot, m.puts)
	m.torn = m.torn || m.puts-m.taken >= m.h.capacity()
	m.puts++
}

func (m *warmPoolModel) take(t *rapid.T) {
	a, ok := m.h.Take()
	i := slices.Index(m.queue, a)
	if ok != (len(m.queue) > 0) || ok && (i < 0 || i > 0 && !m.torn) {
		t.Fatalf("Take: %v, %v, want the first of %v (torn: %v)", a, ok, m.queue, m.torn)
	}
	if ok {
		m.taken = m.slot[i] + 1
	}
	m.drop(i)
}

func (m *warmPoolModel) remove(t *rapid.T) {
	a := m.next.Next()
	if len(m.queue) > 0 && rapid.Bool().Draw(t, "there") {
		a = rapid.SampledFrom(m.queue).Draw(t, "address")
	}
	i := slices.Index(m.queue, a)
	if ok := m.h.Remove(a); ok != (i >= 0) {
		t.Fatalf("Remove %v: %v with %v", a, ok, m.queue)
	}
	m.drop(i)
}

func (m *warmPoolModel) drop(i int) {
	if i < 0 {
		return
	}
	m.queue, m.slot = slices.Delete(m.queue, i, i+1), slices.Delete(m.slot, i, i+1)
}

func (m *warmPoolModel) check(t *rapid.T) {
	got := slices.SortedFunc(m.h.All(), netip.Addr.Compare)
	want := slices.SortedFunc(slices.Values(m.queue), netip.Addr.Compare)
	if !slices.Equal(got, want) || m.h.Len() != len(want) {
		t.Fatalf("All %v, Len %d, want %v", got, m.h.Len(), want)
	}
}
