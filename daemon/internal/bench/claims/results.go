// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Errors that make the results invalid.
var (
	errDuplicateAddress = errors.New("address was claimed twice")
	errNotAllocated     = errors.New("claimed address is free in the network's status")
)

// claimResults has the claimed addresses and the latencies of a run.
type claimResults struct {
	mu             sync.Mutex
	addresses      map[netip.Addr]int // how often each was claimed
	latencies      []time.Duration
	firstLatencies map[int]time.Duration // the time of the first address by client
}

// newClaimResults returns empty results.
func newClaimResults() *claimResults {
	return &claimResults{addresses: map[netip.Addr]int{}, firstLatencies: map[int]time.Duration{}}
}

// record records an address of a client, the time since the start of the run, and the duration of the claim.
func (l *claimResults) record(client int, a netip.Addr, since, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses[a]++
	l.latencies = append(l.latencies, took)
	if _, exists := l.firstLatencies[client]; !exists {
		l.firstLatencies[client] = since
	}
}

// verify compares the claimed addresses with the stored bitmap. The bitmap may have more: the limit cancels
// requests whose write was applied.
func (l *claimResults) verify(ctx context.Context, store allocator.Store, n *network.Network) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, err := store.Get(ctx, n.Ref)
	if err != nil {
		return fmt.Errorf("check %s: %w", n.Ref, err)
	}
	pool, err := poolOf(o)
	if err != nil {
		return fmt.Errorf("check %s: %w", n.Ref, err)
	}
	for a, times := range l.addresses {
		if times > 1 {
			return fmt.Errorf("check %s: %s: %w", n.Ref, a, errDuplicateAddress)
		}
		if !pool.Has(a) {
			return fmt.Errorf("check %s: %s: %w", n.Ref, a, errNotAllocated)
		}
	}
	return nil
}

// poolOf decodes the IPv4 bitmap of a network. A missing bitmap is empty, because only the contenders write
// it.
func poolOf(o *status.Object) (*ipam.Pool, error) {
	subnet := o.Network.V4
	config := ipam.Config{CIDR: subnet.CIDR, Start: subnet.Start, End: subnet.End}
	if o.IPAM == nil || o.IPAM.V4 == nil {
		return ipam.New(config)
	}
	return ipam.Decode(config, ipam.State{CIDR: o.IPAM.V4.CIDR, Cursor: o.IPAM.V4.Cursor, Pages: o.IPAM.V4.Pages})
}
