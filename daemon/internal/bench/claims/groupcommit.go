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
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// groupCommitClient claims with the product's allocator. It claims all addresses at once, as kubelet does
// with the Pods of a rollout.
type groupCommitClient struct {
	*allocator.Allocator
	network *network.Network
}

// newGroupCommitClient returns the client of a node.
func newGroupCommitClient(store allocator.Store, n *network.Network, client int) nodeClient {
	node := fmt.Sprintf("node-%d", client)
	return groupCommitClient{allocator.New(store, allocator.Config{Node: node, NodeUID: "uid-of-" + node, Incarnation: 1}), n}
}

// fillWarmPool claims n addresses at once until the warm pool has as many. The allocator adapts the size of
// its warm pool to such bursts.
func (g groupCommitClient) fillWarmPool(ctx context.Context, n int) error {
	for range 20 {
		if err := g.Claim(ctx, n, func(netip.Addr, time.Duration) {}); err != nil {
			return err
		}
		if g.Stats().Warm >= n {
			return nil
		}
	}
	return fmt.Errorf("warm pool must have %[2]d addresses after 20 bursts of as many Pods, but has %[1]d", g.Stats().Warm, n)
}

// Claim implements nodeClient.
func (g groupCommitClient) Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			begun := time.Now()
			a, _, err := g.Allocator.Claim(ctx, g.network, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
			if err != nil {
				errs[i] = err
				return
			}
			got(a, time.Since(begun))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
