// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/bench/bed"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// client claims addresses of one network.
type client struct {
	allocator *allocator.Allocator
	network   *network.Network
}

// newClient creates a network with this percentage of its addresses in use, and a client.
func newClient(ctx context.Context, env *apitest.Env, percent int) (*client, error) {
	n, err := bed.Network(ctx, env.Client, "10.5.0.0/16")
	if err != nil {
		return nil, err
	}
	store, err := bed.Store(env)
	if err != nil {
		return nil, err
	}
	a := allocator.New(store, allocator.Config{Node: "node", NodeUID: "uid", Incarnation: 1, WarmPoolSize: -1, Cooldown: -1})
	c := &client{allocator: a, network: n}
	if _, err := c.claim(ctx); err != nil { // sets the finalizer and the status
		return nil, err
	}
	if err := setBitmap(ctx, store, n, percent); err != nil {
		return nil, err
	}
	return c, nil
}

// setBitmap sets bits evenly over the subnet, like those of addresses that DanmEps cover.
func setBitmap(ctx context.Context, store allocator.Store, n *network.Network, percent int) error {
	o, err := store.Get(ctx, n.Ref)
	if err != nil {
		return err
	}
	b := o.IPAM.V4
	config := ipam.Config{CIDR: n.V4.CIDR}
	pool, err := ipam.Decode(config, ipam.State{CIDR: b.CIDR, Cursor: b.Cursor, Pages: b.Pages})
	if err != nil {
		return fmt.Errorf("fill %s: %w", n.Ref, err)
	}
	i := 0
	for a := config.CIDR.Addr(); config.CIDR.Contains(a); a = a.Next() {
		if i++; i%100 < percent {
			pool.MarkAllocated(a)
		}
	}
	s := pool.Encode()
	o.IPAM.V4 = &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Allocated: pool.Allocated(), Pages: s.Pages}
	if _, err := store.Update(ctx, o); err != nil {
		return fmt.Errorf("fill %s: %w", n.Ref, err)
	}
	return nil
}

// claim claims one address.
func (c *client) claim(ctx context.Context) (netip.Addr, error) {
	a, _, err := c.allocator.Claim(ctx, c.network, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	return a, err
}

// timeClaims claims n addresses and returns the duration of each claim. It then frees them in one write,
// which it does not measure.
func (c *client) timeClaims(ctx context.Context, n int) ([]time.Duration, error) {
	var took []time.Duration
	var addrs []netip.Addr
	for range n {
		begun := time.Now()
		a, err := c.claim(ctx)
		if err != nil {
			return nil, err
		}
		took, addrs = append(took, time.Since(begun)), append(addrs, a)
	}
	for _, a := range addrs {
		c.allocator.Discard(c.network, a, netip.Addr{})
	}
	return took, c.allocator.ReconcileEntries(ctx, network.KeyOf(c.network))
}

// close stops the allocator.
func (c *client) close() { c.allocator.Close() }
