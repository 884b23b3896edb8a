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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Errors that make the figures worthless.
var (
	errDuplicateAddress = errors.New("address was given twice")
	errNotAllocated     = errors.New("address was given and is free in the network's status")
)

// claimResults is what all clients of a run got.
type claimResults struct {
	mu             sync.Mutex
	addresses      map[netip.Addr]int // how often each was given
	latencies      []time.Duration
	firstLatencies map[int]time.Duration // when each client had one
}

func newClaimResults() *claimResults {
	return &claimResults{addresses: map[netip.Addr]int{}, firstLatencies: map[int]time.Duration{}}
}

// record notes that a client got an address, since it began and since it asked for it.
func (l *claimResults) record(client int, a netip.Addr, since, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses[a]++
	l.latencies = append(l.latencies, took)
	if _, has := l.firstLatencies[client]; !has {
		l.firstLatencies[client] = since
	}
}

// verify compares what was given with what is stored. Bits that nobody got are fine: the
// limit cuts requests off whose write was applied.
func (l *claimResults) verify(ctx context.Context, store claims.Store, n *network.Network) error {
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

// poolOf decodes the IPv4 bitmap of a network; absent means empty here, where nothing
// but the contenders ever wrote.
func poolOf(o *claims.Object) (*ipam.Pool, error) {
	subnet := o.Network.V4
	config := ipam.Config{CIDR: subnet.CIDR, Start: subnet.Start, End: subnet.End}
	if o.IPAM == nil || o.IPAM.V4 == nil {
		return ipam.New(config)
	}
	return ipam.Decode(config, ipam.State{CIDR: o.IPAM.V4.CIDR, Cursor: o.IPAM.V4.Cursor, Pages: o.IPAM.V4.Pages})
}
