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
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// memoryStore is a store of one network in memory. It returns conflicts like a real one.
type memoryStore struct {
	allocator.Store // the methods that the client does not call
	mu              sync.Mutex
	object          status.Object
	version         int
}

// newMemoryStore returns a store and its network.
func newMemoryStore(cidr string) (*memoryStore, *network.Network) {
	prefix := netip.MustParsePrefix(cidr)
	n := &network.Network{Ref: network.Ref{Kind: "ClusterNetwork", Name: "n"}, Type: "macvlan", V4: &network.Subnet{CIDR: prefix}}
	return &memoryStore{object: status.Object{Ref: n.Ref, Network: n, ResourceVersion: "0"}}, n
}

// Get implements nodeClient.Store.
func (m *memoryStore) Get(context.Context, network.Ref) (*status.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.object
	if o.IPAM != nil {
		o.IPAM = o.IPAM.DeepCopy()
	}
	return &o, nil
}

// Update implements nodeClient.Store.
func (m *memoryStore) Update(_ context.Context, o *status.Object) (*status.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.ResourceVersion != m.object.ResourceVersion {
		return nil, status.ErrConflict
	}
	m.version++
	m.object = *o
	m.object.IPAM = o.IPAM.DeepCopy()
	m.object.ResourceVersion = strconv.Itoa(m.version)
	return o, nil
}

// The peer must be correct for a fair comparison: no address is claimed twice or lost.
func TestSingleClaimClient(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 25
	store, n := newMemoryStore("10.0.0.0/16")
	counts, l := &writeCounter{}, newClaimResults()
	all := make([]nodeClient, clients)
	for i := range all {
		all[i] = newSingleClaimClient(noBackoff)(counts.wrap(store), n, i)
	}
	if _, err := claimConcurrently(t.Context(), all, options{addresses: each, limit: time.Minute}, l); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(t.Context(), store, n); err != nil {
		t.Error(err)
	}
	got := []int64{int64(len(l.latencies)), counts.writes.Load() - counts.conflicts.Load(), store.object.IPAM.V4.Allocated}
	if diff := cmp.Diff([]int64{clients * each, clients * each, clients * each}, got); diff != "" {
		t.Errorf("addresses, successful writes, allocated: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(clients, len(store.object.IPAM.Held)); diff != "" {
		t.Errorf("entries: -want +got\n%s", diff)
	}
}

// The peer returns ErrExhausted for a full pool.
func TestSingleExhausted(t *testing.T) {
	t.Parallel()
	store, n := newMemoryStore("10.0.0.0/30")
	err := newSingleClaimClient(noBackoff)(store, n, 0).Claim(t.Context(), 3, func(netip.Addr, time.Duration) {})
	if !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("Claim: got %v, want ErrExhausted", err)
	}
}

// The back-off stays below its bound.
func TestJitteredBackoffIsBounded(t *testing.T) {
	t.Parallel()
	for attempt := range 100 {
		if got := jitteredBackoff(attempt); got < 0 || got >= 2*time.Second || (attempt == 0 && got >= 5*time.Millisecond) {
			t.Errorf("jitteredBackoff(%d): got %s, want less than its bound", attempt, got)
		}
	}
}

// verify detects addresses that were claimed twice or are free.
func TestClaimResultsVerify(t *testing.T) {
	t.Parallel()
	one := netip.MustParseAddr("10.0.0.1")
	cases := map[string]struct {
		reason  string
		claimed []netip.Addr
		want    error
	}{
		"Right":   {reason: "The address is claimed and set.", claimed: []netip.Addr{one}},
		"Missing": {reason: "The limit canceled the claim of a set address.", claimed: nil},
		"Twice":   {reason: "Two clients have the address.", claimed: []netip.Addr{one, one}, want: errDuplicateAddress},
		"Free":    {reason: "Another client may claim the address.", claimed: []netip.Addr{one.Next()}, want: errNotAllocated},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, n := newMemoryStore("10.0.0.0/24")
			if err := newSingleClaimClient(noBackoff)(store, n, 0).Claim(t.Context(), 1, func(netip.Addr, time.Duration) {}); err != nil {
				t.Fatal(err)
			}
			l := newClaimResults()
			for _, a := range tc.claimed {
				l.record(0, a, 0, 0)
			}
			if err := l.verify(t.Context(), store, n); !errors.Is(err, tc.want) {
				t.Errorf("%s\nverify: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

// run rejects an unknown flag.
func TestRunRejectsUnknownFlags(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run with an unknown flag: got no error, want one")
	}
}

// A row has the figures of all runs.
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
