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
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/internal/bench/bed"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// contender is a way to claim addresses.
type contender struct {
	name string
	// warm means that the clients' warm pools are filled before the run.
	warm bool
	// newClient returns the allocator of one client.
	newClient func(store allocator.Store, n *network.Network, client int) nodeClient
}

// nodeClient claims addresses for one client.
type nodeClient interface {
	// Claim claims n addresses. It calls got for each claimed address with the duration of the claim,
	// possibly from several goroutines.
	Claim(ctx context.Context, n int, got func(netip.Addr, time.Duration)) error
	// Close stops the allocator.
	Close()
}

// outcome is the outcome of one run.
type outcome struct {
	elapsed           time.Duration
	latencies         []time.Duration // the duration of each claim
	firstLatencies    []time.Duration // the time until the first address of each client
	writes, conflicts int64
}

// runContender runs all clients on a new network for at most o.limit. It checks that no address was claimed
// twice and that the stored bitmap has all of them.
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
	clients := make([]nodeClient, o.clients)
	for i := range clients {
		own, err := bed.Store(env)
		if err != nil {
			return outcome{}, err
		}
		// The connection of a real daemon is open before its Pods start.
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
	results := newClaimResults()
	elapsed, err := claimConcurrently(ctx, clients, o, results)
	if err != nil {
		return outcome{}, err
	}
	if err := results.verify(ctx, store, n); err != nil {
		return outcome{}, err
	}
	return outcome{
		elapsed, results.latencies, slices.Collect(maps.Values(results.firstLatencies)), counts.writes.Load(), counts.conflicts.Load(),
	}, nil
}

// initializeNetwork claims an address for another node, which sets the finalizer and the status as on any
// network in use.
func initializeNetwork(ctx context.Context, store allocator.Store, n *network.Network) error {
	a := allocator.New(store, allocator.Config{Node: "first", NodeUID: "uid-of-first", Incarnation: 1, WarmPoolSize: -1})
	defer a.Close()
	if _, _, err := a.Claim(ctx, n, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{}); err != nil {
		return fmt.Errorf("claim on network: %w", err)
	}
	return nil
}

// writeCounter counts the writes of all clients of a run.
type writeCounter struct {
	writes, conflicts atomic.Int64
}

// reset sets the counters to 0.
func (c *writeCounter) reset() {
	c.writes.Store(0)
	c.conflicts.Store(0)
}

// wrap returns a store that counts its writes.
func (c *writeCounter) wrap(s allocator.Store) allocator.Store { return countingStore{s, c} }

// countingStore is a store that counts its writes.
type countingStore struct {
	allocator.Store
	counter *writeCounter
}

// Update implements allocator.Store.
func (s countingStore) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	written, err := s.Store.Update(ctx, o)
	s.counter.writes.Add(1)
	if errors.Is(err, status.ErrConflict) {
		s.counter.conflicts.Add(1)
	}
	return written, err
}

// claimConcurrently runs all clients at once and returns the total duration.
func claimConcurrently(ctx context.Context, clients []nodeClient, o options, results *claimResults) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	begun := time.Now()
	for i, c := range clients {
		all.Go(func() {
			err := c.Claim(ctx, o.addresses, func(a netip.Addr, took time.Duration) { results.record(i, a, time.Since(begun), took) })
			if ctx.Err() == nil { // the limit cancels the remaining claims
				errs[i] = err
			}
		})
	}
	all.Wait()
	return time.Since(begun), errors.Join(errs...)
}
