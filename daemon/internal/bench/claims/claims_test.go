// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// memoryStore is a store of one network with the conflicts of a real one.
type memoryStore struct {
	claims.Store // what a single does not call
	mu           sync.Mutex
	object       claims.Object
	version      int
}

func newMemoryStore(cidr string) (*memoryStore, *network.Network) {
	prefix := netip.MustParsePrefix(cidr)
	n := &network.Network{Ref: network.Ref{Kind: "ClusterNetwork", Name: "n"}, Type: "macvlan", V4: &network.Subnet{CIDR: prefix}}
	return &memoryStore{object: claims.Object{Ref: n.Ref, Network: n, ResourceVersion: "0"}}, n
}

func (m *memoryStore) Get(context.Context, network.Ref) (*claims.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.object
	if o.IPAM != nil {
		o.IPAM = o.IPAM.DeepCopy()
	}
	return &o, nil
}

func (m *memoryStore) Update(_ context.Context, o *claims.Object) (*claims.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.ResourceVersion != m.object.ResourceVersion {
		return nil, claims.ErrConflict
	}
	m.version++
	m.object = *o
	m.object.IPAM = o.IPAM.DeepCopy()
	m.object.ResourceVersion = strconv.Itoa(m.version)
	return o, nil
}

// The peer must be right, or the comparison is not fair: nothing twice, nothing lost.
func TestSingleClaimClient(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 25
	store, n := newMemoryStore("10.0.0.0/16")
	counts, l := &writeCounter{}, newClaimResults()
	all := make([]allocator, clients)
	for i := range all {
		all[i] = newSingleClaimClient(noBackoff)(counts.wrap(store), n, i)
	}
	if _, err := claimConcurrently(t.Context(), all, options{addresses: each, limit: time.Minute}, l); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(t.Context(), store, n); err != nil {
		t.Error(err)
	}
	got := []int64{int64(len(l.latencies)), counts.writes.Load() - counts.conflicts.Load(), store.object.Allocated}
	if diff := cmp.Diff([]int64{clients * each, clients * each, clients * each}, got); diff != "" {
		t.Errorf("addresses, writes that succeeded, allocated: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(clients, len(store.object.IPAM.Held)); diff != "" {
		t.Errorf("entries: -want +got\n%s", diff)
	}
}

func TestSingleExhausted(t *testing.T) {
	t.Parallel()
	store, n := newMemoryStore("10.0.0.0/30")
	err := newSingleClaimClient(noBackoff)(store, n, 0).Claim(t.Context(), 3, func(netip.Addr, time.Duration) {})
	if !errors.Is(err, claims.ErrExhausted) {
		t.Errorf("Claim: got %v, want ErrExhausted", err)
	}
}

func TestJitterStaysBelowItsBound(t *testing.T) {
	t.Parallel()
	for attempt := range 100 {
		if got := jitteredBackoff(attempt); got < 0 || got >= 2*time.Second || (attempt == 0 && got >= 5*time.Millisecond) {
			t.Errorf("jitter(%d): got %s", attempt, got)
		}
	}
}

// Figures of a run that broke the law are not printed.
func TestClaimResultsVerify(t *testing.T) {
	t.Parallel()
	one := netip.MustParseAddr("10.0.0.1")
	cases := map[string]struct {
		reason string
		given  []netip.Addr
		want   error
	}{
		"Right":   {reason: "Given and set.", given: []netip.Addr{one}},
		"Missing": {reason: "An address that was cut off is fine.", given: nil},
		"Twice":   {reason: "Two clients have it.", given: []netip.Addr{one, one}, want: errDuplicateAddress},
		"Free":    {reason: "Others may get it.", given: []netip.Addr{one.Next()}, want: errNotAllocated},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, n := newMemoryStore("10.0.0.0/24")
			if err := newSingleClaimClient(noBackoff)(store, n, 0).Claim(t.Context(), 1, func(netip.Addr, time.Duration) {}); err != nil {
				t.Fatal(err)
			}
			l := newClaimResults()
			for _, a := range tc.given {
				l.record(0, a, 0, 0)
			}
			if err := l.verify(t.Context(), store, n); !errors.Is(err, tc.want) {
				t.Errorf("%s\ncheck: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestRunRefusesUnknownFlags(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run: got no error")
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	got := row("x", []outcome{{
		elapsed: 2 * time.Second, latencies: []time.Duration{time.Millisecond, 3 * time.Millisecond}, firstLatencies: []time.Duration{2 * time.Millisecond}, writes: 6, conflicts: 4,
	}})
	var figures []float64
	for _, s := range got.Columns {
		figures = append(figures, s.Median())
	}
	if diff := cmp.Diff([]float64{1, 2, 1, 3, 2, 3, 2}, figures); diff != "" {
		t.Errorf("addresses/s, addresses, p50, p99, first, writes, conflicts: -want +got\n%s", diff)
	}
}
