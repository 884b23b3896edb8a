// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// host is a machine with its current daemon.
type host struct {
	*machine
	fleet *fleet
	store allocator.Store
	api   client.Client

	restartMu sync.Mutex // one restart at a time
	daemon    atomic.Pointer[daemon]
}

// fleet has all nodes of a cluster.
type fleet struct {
	env      *apitest.Env
	ns       string
	keys     []network.Key
	registry *addressRegistry
	change   func(*allocator.Config)
	hosts    []*host
}

// newFleet starts n nodes that share the networks. They connect with config.
func newFleet(t *testing.T, env *apitest.Env, n int, config *rest.Config, change func(*allocator.Config), nets ...*network.Network) *fleet {
	t.Helper()
	f := &fleet{env: env, ns: env.Namespace(t), registry: newRegistry(), change: func(cfg *allocator.Config) {
		cfg.NodeCount = func() int { return n }
		change(cfg)
	}}
	for _, net := range nets {
		f.keys = append(f.keys, network.KeyOf(net))
	}
	for i := range n {
		h := &host{machine: newMachine(fmt.Sprintf("node-%d", i)), fleet: f}
		api := connect(t, config, h.name)
		h.store, h.api = kube.NewStore(api), api
		h.start()
		f.hosts = append(f.hosts, h)
		t.Cleanup(func() { h.daemon.Load().Close() })
	}
	go f.runInformer(t.Context())
	return f
}

// names returns the names of all nodes.
func (f *fleet) names() []string {
	var names []string
	for _, h := range f.hosts {
		names = append(names, h.name)
	}
	return names
}

// index returns the index of a node.
func (f *fleet) index(h *host) int {
	for i := range f.hosts {
		if f.hosts[i] == h {
			return i
		}
	}
	return -1
}

// stats returns the sums of the current daemons' statistics.
func (f *fleet) stats() allocator.Stats {
	var sum allocator.Stats
	for _, h := range f.hosts {
		one := h.daemon.Load().Stats()
		sum.FromWarmPool += one.FromWarmPool
		sum.Committed += one.Committed
		sum.Exhausted += one.Exhausted
	}
	return sum
}

// start starts a daemon, which resumes from the journal.
func (h *host) start() *daemon {
	incarnation := h.nextIncarnation()
	d := &daemon{
		Allocator: allocator.New(h.store, h.config(incarnation, h.fleet.change)),
		machine:   h.machine, incarnation: incarnation, api: h.api, ns: h.fleet.ns, registry: h.fleet.registry,
	}
	d.Resume(h.previousState())
	h.daemon.Store(d)
	return d
}

// kill kills the daemon and starts another one.
func (h *host) kill(ctx context.Context) error {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	previous := h.daemon.Load()
	h.nextIncarnation()
	previous.Close()
	return h.reconcile(ctx, h.start())
}

// restart stops the daemon and starts another one.
func (h *host) restart(ctx context.Context) error {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	previous := h.daemon.Load()
	releaseCtx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = previous.ReleaseWarmPool(releaseCtx) // the rest stays in the entry
	h.nextIncarnation()
	previous.Close()
	return h.reconcile(ctx, h.start())
}

// reconcile settles the entries of the node.
func (h *host) reconcile(ctx context.Context, d *daemon) error {
	return retryUntilDone(ctx, func() error { return d.ReconcileEntries(ctx, h.fleet.keys...) })
}

// retry calls do with the current daemon until it succeeds.
func (h *host) retry(ctx context.Context, do func(*daemon) error) error {
	return retryUntilDone(ctx, func() error { return do(h.daemon.Load()) })
}

// powerDown kills the daemon and starts no other one.
func (h *host) powerDown() {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	h.nextIncarnation()
	h.daemon.Load().Close()
}

// runPod attaches and detaches one Pod, as kubelet does. A DEL and a new sandbox follow a failed ADD.
func (h *host) runPod(ctx context.Context, net *network.Network, lifetime time.Duration, published bool) error {
	owner, err := h.attach(ctx, net)
	if err != nil {
		return err
	}
	if published {
		err = h.retry(ctx, func(d *daemon) error { return d.publish(ctx, owner) })
	}
	select {
	case <-time.After(lifetime):
	case <-ctx.Done():
	}
	return errors.Join(err, h.retry(ctx, func(d *daemon) error { return d.detach(ctx, owner) }))
}

// attach repeats the attachment with new sandboxes until it succeeds.
func (h *host) attach(ctx context.Context, net *network.Network) (owner string, err error) {
	err = retryUntilDone(ctx, func() error {
		owner = apitest.Name("ep")
		if err := h.daemon.Load().attach(ctx, net, owner); err != nil {
			failed := owner
			return errors.Join(err, h.retry(ctx, func(d *daemon) error { return d.detach(ctx, failed) }))
		}
		return nil
	})
	return owner, err
}
