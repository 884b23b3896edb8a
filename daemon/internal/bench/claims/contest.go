// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/internal/bench/bed"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// contender is a way to claim addresses.
type contender struct {
	name string
	// warm asks for a node that had Pods of the network before.
	warm bool
	// newClient makes the allocator of one client.
	newClient func(store claims.Store, n *network.Network, client int) allocator
}

// allocator serves one client.
type allocator interface {
	// Claim takes n addresses. It calls got for each as soon as the client can use it,
	// with the time since it was asked for, possibly from several goroutines.
	Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error
	// Close ends its work.
	Close()
}

// outcome is what one run gave.
type outcome struct {
	elapsed           time.Duration
	latencies         []time.Duration // of each address, since its client asked for it
	firstLatencies    []time.Duration // until each client had one
	writes, conflicts int64
}

// runContender lets all clients claim on a fresh network, for at most o.limit, and checks
// that nobody got what another has and that the stored bitmap agrees.
func runContender(ctx context.Context, env *apitest.Env, c contender, o options) (outcome, error) {
	n, err := bed.Network(ctx, env.Client, "10.5.0.0/16")
	if err != nil {
		return outcome{}, err
	}
	store, err := bed.Store(env)
	if err != nil {
		return outcome{}, err
	}
	if err := initializeNetwork(ctx, store, n); err != nil {
		return outcome{}, err
	}
	counts := &writeCounter{}
	clients := make([]allocator, o.clients)
	for i := range clients {
		own, err := bed.Store(env)
		if err != nil {
			return outcome{}, err
		}
		// A daemon has been connected for long when its Pods come.
		if _, err := own.Get(ctx, n.Ref); err != nil {
			return outcome{}, err
		}
		clients[i] = c.newClient(counts.wrap(own), n, i)
		defer clients[i].Close()
		if g, ok := clients[i].(groupCommitClient); ok && c.warm {
			if err := g.fillWarmPool(ctx, o.addresses); err != nil {
				return outcome{}, err
			}
		}
	}
	counts.reset()
	l := newClaimResults()
	elapsed, err := claimConcurrently(ctx, clients, o, l)
	if err != nil {
		return outcome{}, err
	}
	if err := l.verify(ctx, store, n); err != nil {
		return outcome{}, err
	}
	return outcome{
		elapsed, l.latencies, slices.Collect(maps.Values(l.firstLatencies)), counts.writes.Load(), counts.conflicts.Load(),
	}, nil
}

// initializeNetwork has one more node use the network once: finalizer and state are there when the
// contest begins, as on each network but a new one.
func initializeNetwork(ctx context.Context, store claims.Store, n *network.Network) error {
	a := claims.New(store, claims.Config{Node: "first", NodeUID: "uid-of-first", Life: 1, Hold: -1})
	defer a.Close()
	if _, _, err := a.Claim(ctx, n, claims.Want{Dynamic: true}, claims.Want{}); err != nil {
		return fmt.Errorf("use network: %w", err)
	}
	return nil
}

// claimConcurrently starts all clients at once and returns how long they took together.
func claimConcurrently(ctx context.Context, clients []allocator, o options, l *claimResults) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	begin := time.Now()
	for i, c := range clients {
		all.Go(func() {
			err := c.Claim(ctx, o.addresses, func(a netip.Addr, took time.Duration) { l.record(i, a, time.Since(begin), took) })
			if ctx.Err() == nil { // at the limit all that is left fails, as it should
				errs[i] = err
			}
		})
	}
	all.Wait()
	return time.Since(begin), errors.Join(errs...)
}
