// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// trio has three nodes with warm addresses and Pods in one network.
type trio struct {
	*fleet
	net       *network.Network
	collector *gc.Collector
	owners    [][]string // the lasting attachments of each node
}

// newTrioWithPods returns a trio with a large network.
func newTrioWithPods(t *testing.T, env *apitest.Env) *trio {
	t.Helper()
	return newTrio(t, env, "10.0.0.0/23", func(cfg *allocator.Config) {
		cfg.Cooldown, cfg.WarmPoolIdleTimeout = 50*time.Millisecond, 5*time.Second
	})
}

// newTrio starts three nodes.
func newTrio(t *testing.T, env *apitest.Env, cidr string, change func(*allocator.Config)) *trio {
	t.Helper()
	net := create(t, env, cidr)
	f := newFleet(t, env, 3, env.Config, func(cfg *allocator.Config) {
		cfg.FlushDelay, cfg.Report = 200*time.Millisecond, func(err error) { t.Log(err) }
		change(cfg)
	}, net)
	collector := gc.NewCollector(kube.NewStore(env.Client), gc.Config{})
	return &trio{fleet: f, net: net, collector: collector, owners: make([][]string, len(f.hosts))}
}

// attach attaches lasting Pods with DanmEps on some nodes.
func (l *trio) attach(t *testing.T, each int, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		for range each {
			h := l.hosts[i]
			owner, err := h.attach(t.Context(), l.net)
			if err == nil {
				err = h.retry(t.Context(), func(d *daemon) error { return d.publish(t.Context(), owner) })
			}
			if err != nil {
				t.Fatal(err)
			}
			l.owners[i] = append(l.owners[i], owner)
		}
	}
}

// startChurn attaches and detaches Pods on nodes until the returned function is called.
func (l *trio) startChurn(t *testing.T, hosts ...*host) (end func()) {
	t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, h := range hosts {
		for range 3 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := h.runPod(t.Context(), l.net, 20*time.Millisecond, true); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() { close(stop); all.Wait() })
}

// detachAll detaches all Pods and checks that no address is in use.
func (l *trio) detachAll(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for i, h := range l.hosts {
		for _, owner := range l.owners[i] {
			if err := h.retry(ctx, func(d *daemon) error { return d.detach(ctx, owner) }); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(h.retry(ctx, func(d *daemon) error { return d.removeUnknown(ctx) }), h.reconcile(ctx, h.daemon.Load()),
			h.daemon.Load().ReleaseWarmPool(ctx))
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "no address is in use", func() error {
		_, err := l.collector.RepairBitmap(t.Context(), network.KeyOf(l.net))
		return errors.Join(err, checkUsed(t, l.env, l.net, 0), checkNoEntries(t, l.env, l.net))
	})
}

// reclaimNode frees the addresses of a deleted Node, as the controller does.
func (l *trio) reclaimNode(t *testing.T, h *host) {
	t.Helper()
	list := &v1.DanmEpList{}
	if err := l.env.Client.List(t.Context(), list, client.InNamespace(l.ns), client.MatchingFields{"spec.Host": h.name}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if err := removeEndpoint(t.Context(), l.env.Client, &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the addresses of the node are freed", func() error {
		_, err := l.collector.FreeGoneNodes(t.Context(), network.KeyOf(l.net), map[string]string{h.name: h.uid})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("the node has no DanmEps")
		}
		return err
	})
}
