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
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// host is a machine with the daemon of the moment.
type host struct {
	*machine
	fleet *fleet
	store claims.Store
	api   client.Client

	restartMu sync.Mutex // one restart at a time
	daemon    atomic.Pointer[daemon]
}

// fleet is all nodes of a cluster.
type fleet struct {
	env      *apitest.Env
	ns       string
	keys     []claims.Key
	registry *addressRegistry
	change   func(*claims.Config)
	hosts    []*host
}

// newFleet starts n nodes that share the networks. Each of their requests takes the way
// that config has.
func newFleet(t *testing.T, env *apitest.Env, n int, config *rest.Config, change func(*claims.Config), nets ...*network.Network) *fleet {
	t.Helper()
	f := &fleet{env: env, ns: env.Namespace(t), registry: newRegistry(), change: func(cfg *claims.Config) {
		cfg.Nodes = func() int { return n }
		change(cfg)
	}}
	for _, net := range nets {
		f.keys = append(f.keys, claims.KeyOf(net))
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

// names are those of all nodes.
func (f *fleet) names() []string {
	var names []string
	for _, h := range f.hosts {
		names = append(names, h.name)
	}
	return names
}

// index is the place of a node in the fleet.
func (f *fleet) index(h *host) int {
	for i := range f.hosts {
		if f.hosts[i] == h {
			return i
		}
	}
	return -1
}

// stats adds up what the daemons of the moment count.
func (f *fleet) stats() claims.Stats {
	var sum claims.Stats
	for _, h := range f.hosts {
		one := h.daemon.Load().Stats()
		sum.FromHold += one.FromHold
		sum.Committed += one.Committed
		sum.Exhausted += one.Exhausted
	}
	return sum
}

// start begins a life: it takes over the journal, and compares it with the cluster in
// the background.
func (h *host) start() *daemon {
	life := h.nextIncarnation()
	d := &daemon{
		Allocator: claims.New(h.store, h.config(life, h.fleet.change)),
		machine:   h.machine, incarnation: life, api: h.api, ns: h.fleet.ns, registry: h.fleet.registry,
	}
	d.Resume(h.previousState())
	h.daemon.Store(d)
	return d
}

// kill ends the daemon at whatever it does, and starts another.
func (h *host) kill(ctx context.Context) error {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	former := h.daemon.Load()
	h.nextIncarnation()
	former.Close()
	return h.reconcile(ctx, h.start())
}

// restart ends the daemon in an orderly way, and starts another.
func (h *host) restart(ctx context.Context) error {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	former := h.daemon.Load()
	bound, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = former.GiveBack(bound) // what it did not reach stays in the entry
	h.nextIncarnation()
	former.Close()
	return h.reconcile(ctx, h.start())
}

func (h *host) reconcile(ctx context.Context, d *daemon) error {
	return retryUntilDone(ctx, func() error { return d.Settle(ctx, h.fleet.keys...) })
}

// retry does something with the daemon of the moment, until it succeeds.
func (h *host) retry(ctx context.Context, what func(*daemon) error) error {
	return retryUntilDone(ctx, func() error { return what(h.daemon.Load()) })
}

// powerDown ends the daemon, and its node is off.
func (h *host) powerDown() {
	h.restartMu.Lock()
	defer h.restartMu.Unlock()
	h.nextIncarnation()
	h.daemon.Load().Close()
}

// runPod attaches and detaches one Pod, as kubelet does: an ADD that fails is followed by
// a DEL of its sandbox, and by another sandbox.
func (h *host) runPod(ctx context.Context, net *network.Network, stay time.Duration, published bool) error {
	owner, err := h.attach(ctx, net)
	if err != nil {
		return err
	}
	if published {
		err = h.retry(ctx, func(d *daemon) error { return d.publish(ctx, owner) })
	}
	select {
	case <-time.After(stay):
	case <-ctx.Done():
	}
	return errors.Join(err, h.retry(ctx, func(d *daemon) error { return d.detach(ctx, owner) }))
}

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
