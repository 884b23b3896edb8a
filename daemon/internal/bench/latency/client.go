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
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// client claims addresses of one network.
type client struct {
	allocator *claims.Allocator
	network   *network.Network
}

// newClient makes a network that is as full as that, all over its subnet, and a node.
func newClient(ctx context.Context, env *apitest.Env, percent int) (*client, error) {
	n, err := bed.Network(ctx, env.Client, "10.5.0.0/16")
	if err != nil {
		return nil, err
	}
	store, err := bed.Store(env)
	if err != nil {
		return nil, err
	}
	a := claims.New(store, claims.Config{Node: "node", NodeUID: "uid", Life: 1, Hold: -1, Cool: -1})
	c := &client{allocator: a, network: n}
	if _, err := c.claim(ctx); err != nil { // finalizer and state
		return nil, err
	}
	if err := setBitmap(ctx, store, n, percent); err != nil {
		return nil, err
	}
	return c, nil
}

// setBitmap sets bits as of Pods that have DanmEps, spread evenly.
func setBitmap(ctx context.Context, store claims.Store, n *network.Network, percent int) error {
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
	o.IPAM.V4 = &v1.AddressBitmap{CIDR: s.CIDR, Cursor: s.Cursor, Pages: s.Pages}
	if _, err := store.Update(ctx, o); err != nil {
		return fmt.Errorf("fill %s: %w", n.Ref, err)
	}
	return nil
}

func (c *client) claim(ctx context.Context) (netip.Addr, error) {
	a, _, err := c.allocator.Claim(ctx, c.network, claims.Want{Dynamic: true}, claims.Want{})
	return a, err
}

// timeClaims makes n claims and returns how long each took. All are given back then, in one
// write that is not counted.
func (c *client) timeClaims(ctx context.Context, n int) ([]time.Duration, error) {
	var took []time.Duration
	var addrs []netip.Addr
	for range n {
		begin := time.Now()
		a, err := c.claim(ctx)
		if err != nil {
			return nil, err
		}
		took, addrs = append(took, time.Since(begin)), append(addrs, a)
	}
	for _, a := range addrs {
		c.allocator.Discard(c.network, a, netip.Addr{})
	}
	return took, c.allocator.Settle(ctx, claims.KeyOf(c.network))
}

func (c *client) close() { c.allocator.Close() }
