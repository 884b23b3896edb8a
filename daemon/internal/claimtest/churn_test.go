// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/random"
)

// churn has nodes that claim, use and free addresses of one network.
type churn struct {
	env          *apitest.Env
	net          *network.Network
	nodes        []*node
	rounds, each int // each node claims this many addresses in each round
	registry     *addressRegistry
}

// run returns when all addresses are freed.
func (c *churn) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		all.Go(func() {
			for range c.rounds {
				if err := c.round(ctx, n); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// round runs one round of a node.
func (c *churn) round(ctx context.Context, n *node) error {
	errs := make([]error, c.each)
	var all sync.WaitGroup
	for i := range c.each {
		all.Go(func() { errs[i] = c.useAddress(ctx, n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// useAddress claims, publishes and releases one address. It repeats a failed claim, as kubelet does.
func (c *churn) useAddress(ctx context.Context, n *node) error {
	var a netip.Addr
	err := retryUntilDone(ctx, func() (err error) {
		a, err = n.claim(ctx, c.net)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.registry.acquire(network.KeyOf(c.net), a, n.name); err != nil {
		return err
	}
	name := apitest.Name("ep")
	var ep *v1.DanmEp
	err = retryUntilDone(ctx, func() (err error) {
		ep, err = n.publish(ctx, c.net, a, name)
		return err
	})
	if err != nil {
		return err
	}
	c.registry.release(network.KeyOf(c.net), a, n.name)
	return retryUntilDone(ctx, func() error { return n.release(ctx, c.net, a, ep) })
}

// retryUntilDone repeats attempt until it succeeds, ctx ends, or an address is in use twice.
func retryUntilDone(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if err == nil || errors.Is(err, errDuplicateAddress) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		}
	}
}

// newChurn starts the nodes. config returns the connection of a node.
func newChurn(t *testing.T, env *apitest.Env, nodes, rounds, each int, config func(i int) *rest.Config) *churn {
	t.Helper()
	ns := env.Namespace(t)
	c := &churn{env: env, net: create(t, env, "10.0.0.0/24"), rounds: rounds, each: each, registry: newRegistry()}
	for i := range nodes {
		c.nodes = append(c.nodes, start(t, env, ns, fmt.Sprintf("node-%d", i), 1, config(i)))
	}
	return c
}

// Ten nodes claim from one network at once, while the garbage collector runs.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c := newChurn(t, env, 10, 2, 10, func(int) *rest.Config { return env.Config })
	end := collectGarbageUntil(t, env, c.net)
	if err := c.run(t.Context()); err != nil {
		t.Error(err)
	}
	end()
	eventually(t, "no address is in use", func() error { return checkUsed(t, env, c.net, 0) })
}

// collectGarbageUntil runs the garbage collector on a network until the returned function is called. It
// fails the test if the collector finds a leaked address or a conflict.
func collectGarbageUntil(t *testing.T, env *apitest.Env, net *network.Network) (end func()) {
	t.Helper()
	collector := gc.NewCollector(kube.NewStore(env.Client), gc.Config{Timeout: time.Minute})
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for audits := 1; ; audits++ {
			found, err := collector.RepairBitmap(t.Context(), network.KeyOf(net))
			if err != nil || len(found.Conflicts) > 0 || found.Drift != (gc.Drift{}) {
				t.Errorf("collection %d: got %+v and error %v, want neither", audits, found, err)
				return
			}
			select {
			case <-over:
				t.Logf("%d collections", audits)
				return
			case <-time.After(5 * time.Millisecond): // leaves time for requests of the nodes
			}
		}
	}()
	return func() { close(over); <-done }
}

// Each tenth write is lost, before or after the API server applied it.
func TestManyNodesLosingWrites(t *testing.T) {
	t.Parallel()
	env, seed := apitest.Start(t), random.Seed(t)
	lossy := func(i int) *rest.Config {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		var mu sync.Mutex
		return apitest.Faulty(env.Config, func(r *http.Request) apitest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodGet {
				return apitest.Pass
			}
			return map[int]apitest.Fault{0: apitest.LoseReply, 1: apitest.LoseRequest}[random.IntN(20)]
		})
	}
	c := newChurn(t, env, 5, 3, 10, lossy)
	if err := c.run(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "no address is in use", func() error { return checkUsed(t, env, c.net, 0) })
}

// The API server is killed during claims, and restarted.
func TestManyNodesWhileAPIServerDies(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	c := newChurn(t, env, 5, 4, 5, func(int) *rest.Config { return env.Config })
	done := make(chan error, 1)
	go func() { done <- c.run(t.Context()) }()
	for range 2 {
		eventually(t, "addresses are claimed", func() error {
			o, err := readNetwork(t, env, c.net)
			if err == nil && ipamtest.Allocated(o.IPAM) == 0 && len(done) == 0 {
				err = errors.New("none yet")
			}
			return err
		})
		if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
			t.Fatal(err)
		}
		if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "no address is in use", func() error { return checkUsed(t, env, c.net, 0) })
}
