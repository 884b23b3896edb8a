// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// contender is a way to claim addresses.
type contender struct {
	name string
	// join makes the allocator of one client.
	join func(store claims.Store, n *network.Network, client int) allocator
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
	writes, conflicts int64
}

// contest lets all clients claim on a fresh network, for at most o.limit, and checks
// that nobody got what another has and that the stored bitmap agrees.
func contest(ctx context.Context, env *apitest.Env, c contender, o options) (outcome, error) {
	n, err := createNetwork(ctx, env.Client)
	if err != nil {
		return outcome{}, err
	}
	store, err := connect(env)
	if err != nil {
		return outcome{}, err
	}
	counts := &counter{}
	clients := make([]allocator, o.clients)
	for i := range clients {
		own, err := connect(env)
		if err != nil {
			return outcome{}, err
		}
		// A daemon has been connected for long when its Pods come.
		if _, err := own.Get(ctx, n.Ref); err != nil {
			return outcome{}, err
		}
		clients[i] = c.join(counts.over(own), n, i)
		defer clients[i].Close()
	}
	l := newLedger()
	elapsed, err := race(ctx, clients, o, l)
	if err != nil {
		return outcome{}, err
	}
	if err := l.check(ctx, store, n); err != nil {
		return outcome{}, err
	}
	return outcome{elapsed, l.latencies, counts.writes.Load(), counts.conflicts.Load()}, nil
}

// race starts all clients at once and returns how long they took together.
func race(ctx context.Context, clients []allocator, o options, l *ledger) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	begin := time.Now()
	for i, c := range clients {
		all.Go(func() {
			err := c.Claim(ctx, o.addresses, l.enter)
			if ctx.Err() == nil { // at the limit all that is left fails, as it should
				errs[i] = err
			}
		})
	}
	all.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// connect returns the product's own store over a connection that no other client shares.
func connect(env *apitest.Env) (claims.Store, error) {
	config := env.Plane.RESTConfig()
	config.Dial = (&net.Dialer{}).DialContext // a dialer of its own keeps it out of client-go's cache
	c, err := cluster.Connect(config, "unused")
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return objects.NewStore(c.Direct), nil
}

func createNetwork(ctx context.Context, c client.Client) (*network.Network, error) {
	o := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("bench")},
		Spec: v1.NetworkSpec{NetworkID: "bench", NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{
			Device: "ens4", CIDR: "10.5.0.0/16",
		}},
	}
	if err := c.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create network: %w", err)
	}
	n, err := network.FromClusterNetwork(o)
	if err != nil {
		return nil, fmt.Errorf("read network: %w", err)
	}
	return n, nil
}
