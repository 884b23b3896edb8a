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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// contenders lists ours first, then its peers.
func contenders() []contender {
	return []contender{
		{name: "Patchbay, nothing held: group commit, jitter", newClient: newGroupCommitClient},
		{name: "Patchbay, holds warm", newClient: newGroupCommitClient, warm: true},
		{name: "one address per PUT, jitter", newClient: newSingleClaimClient(jitteredBackoff)},
		{name: "one address per PUT, retried at once", newClient: newSingleClaimClient(noBackoff)},
	}
}

// groupCommitClient is the product's allocator. All its addresses are asked for at once, as kubelet
// does with the Pods of a rollout.
type groupCommitClient struct {
	*claims.Allocator
	network *network.Network
}

func newGroupCommitClient(store claims.Store, n *network.Network, client int) allocator {
	node := fmt.Sprintf("node-%d", client)
	return groupCommitClient{claims.New(store, claims.Config{Node: node, NodeUID: "uid-of-" + node, Life: 1}), n}
}

// fillWarmPool has as many Pods start at once before, which the node remembers.
func (g groupCommitClient) fillWarmPool(ctx context.Context, n int) error {
	for range 20 {
		if err := g.Claim(ctx, n, func(netip.Addr, time.Duration) {}); err != nil {
			return err
		}
		if g.Stats().Held >= n {
			return nil
		}
	}
	return fmt.Errorf("%d addresses are held after 20 times %d Pods", g.Stats().Held, n)
}

// Claim implements allocator.
func (g groupCommitClient) Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			begin := time.Now()
			a, _, err := g.Allocator.Claim(ctx, g.network, claims.Want{Dynamic: true}, claims.Want{})
			if err != nil {
				errs[i] = err
				return
			}
			got(a, time.Since(begin))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
