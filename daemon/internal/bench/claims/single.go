// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// singleClaimClient claims one address per write: it reads the network, allocates the next free address,
// writes with the resourceVersion, and retries after a conflict.
type singleClaimClient struct {
	store   allocator.Store
	network *network.Network
	node    string
	backoff func(attempt int) time.Duration
}

// newSingleClaimClient returns a constructor of clients with this back-off.
func newSingleClaimClient(backoff func(int) time.Duration) func(allocator.Store, *network.Network, int) nodeClient {
	return func(store allocator.Store, n *network.Network, client int) nodeClient {
		return singleClaimClient{store, n, fmt.Sprintf("node-%d", client), backoff}
	}
}

// Claim implements nodeClient.
func (s singleClaimClient) Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error {
	for range n {
		begun := time.Now()
		a, err := s.claimOne(ctx)
		if err != nil {
			return err
		}
		got(a, time.Since(begun))
	}
	return nil
}

// Close implements nodeClient.
func (s singleClaimClient) Close() {}

// claimOne claims one address and retries after conflicts.
func (s singleClaimClient) claimOne(ctx context.Context) (netip.Addr, error) {
	for attempt := 0; ; attempt++ {
		a, err := s.claimOnce(ctx)
		if !errors.Is(err, status.ErrConflict) {
			return a, err
		}
		select {
		case <-time.After(s.backoff(attempt)):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// claimOnce makes one attempt, with one read and one write.
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
		return a, allocator.ErrExhausted
	}
	if o.IPAM == nil {
		o.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{}}
	}
	state := pool.Encode()
	o.IPAM.V4 = &v1.AddressBitmap{CIDR: state.CIDR, Cursor: state.Cursor, Allocated: pool.Allocated(), Pages: state.Pages}
	if err := s.addToEntry(o.IPAM, a); err != nil {
		return a, err
	}
	_, err = s.store.Update(ctx, o)
	return a, err
}

// addToEntry adds the address to the node's entry.
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
