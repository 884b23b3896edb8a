// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// singleClaimClient claims one address per write, one after the other: read, take the next free
// one, write with the resourceVersion, and begin again after a conflict.
type singleClaimClient struct {
	store   claims.Store
	network *network.Network
	node    string
	backoff func(attempt int) time.Duration
}

func newSingleClaimClient(pause func(int) time.Duration) func(claims.Store, *network.Network, int) allocator {
	return func(store claims.Store, n *network.Network, client int) allocator {
		return singleClaimClient{store, n, fmt.Sprintf("node-%d", client), pause}
	}
}

// noBackoff does not wait after a conflict.
func noBackoff(int) time.Duration { return 0 }

// jitteredBackoff waits as Patchbay does: at random, below a bound that doubles from 5 ms to 2 s.
func jitteredBackoff(attempt int) time.Duration {
	const first, most = 5 * time.Millisecond, 2 * time.Second
	bound := min(first<<min(attempt, 10), most)
	return rand.N(bound)
}

// Claim implements allocator.
func (s singleClaimClient) Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error {
	for range n {
		begin := time.Now()
		a, err := s.claimOne(ctx)
		if err != nil {
			return err
		}
		got(a, time.Since(begin))
	}
	return nil
}

// Close implements allocator.
func (s singleClaimClient) Close() {}

func (s singleClaimClient) claimOne(ctx context.Context) (netip.Addr, error) {
	for attempt := 0; ; attempt++ {
		a, err := s.claimOnce(ctx)
		if !errors.Is(err, claims.ErrConflict) {
			return a, err
		}
		select {
		case <-time.After(s.backoff(attempt)):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// claimOnce is one read and one write.
func (s singleClaimClient) claimOnce(ctx context.Context) (netip.Addr, error) {
	o, err := s.store.Get(ctx, s.network.Ref)
	if err != nil {
		return netip.Addr{}, err
	}
	pool, err := poolOf(o)
	if err != nil {
		return netip.Addr{}, err
	}
	a, ok := pool.AllocateNext()
	if !ok {
		return a, claims.ErrExhausted
	}
	if o.IPAM == nil {
		o.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{}}
	}
	state := pool.Encode()
	o.IPAM.V4 = &v1.AddressBitmap{CIDR: state.CIDR, Cursor: state.Cursor, Pages: state.Pages}
	if err := s.addToEntry(o.IPAM, a); err != nil {
		return a, err
	}
	o.Allocated = pool.Allocated()
	_, err = s.store.Update(ctx, o)
	return a, err
}

// addToEntry enters the address under the node's name.
func (s singleClaimClient) addToEntry(status *v1.IPAMStatus, a netip.Addr) error {
	entry := status.Held[s.node]
	ranges, err := ipam.ParseRanges(entry.V4)
	if err != nil {
		return err
	}
	ranges.Add(a)
	entry.UID, entry.V4 = "uid-of-"+s.node, ranges.String()
	status.Held[s.node] = entry
	return nil
}
