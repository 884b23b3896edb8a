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
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// trio is three nodes that hold and use addresses of one network.
type trio struct {
	*fleet
	net       *network.Network
	collector *claims.Steward
	owners    [][]string // the attachments of each node that stay
}

func newTrioWithPods(t *testing.T, env *apitest.Env) *trio {
	t.Helper()
	return newTrio(t, env, "10.0.0.0/23", func(cfg *claims.Config) {
		cfg.Cool, cfg.Rest = 50*time.Millisecond, 5*time.Second
	})
}

func newTrio(t *testing.T, env *apitest.Env, cidr string, change func(*claims.Config)) *trio {
	t.Helper()
	net := create(t, env, cidr)
	f := newFleet(t, env, 3, env.Config, func(cfg *claims.Config) {
		cfg.Idle, cfg.Report = 200*time.Millisecond, func(err error) { t.Log(err) }
		change(cfg)
	}, net)
	steward := claims.NewSteward(kube.NewStore(env.Client), claims.StewardConfig{})
	return &trio{fleet: f, net: net, collector: steward, owners: make([][]string, len(f.hosts))}
}

// attach gives some nodes Pods that stay, with DanmEps.
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

// startChurn has Pods come and go on nodes until the function that it returns is called.
func (l *trio) startChurn(t *testing.T, hosts ...*host) (end func()) {
	t.Helper()
	over := make(chan struct{})
	var all sync.WaitGroup
	for _, h := range hosts {
		for range 3 {
			all.Go(func() {
				for {
					select {
					case <-over:
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
	return sync.OnceFunc(func() { close(over); all.Wait() })
}

// detachAll detaches all and checks that nothing is left.
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
			h.daemon.Load().GiveBack(ctx))
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nothing is left", func() error {
		_, err := l.collector.Audit(t.Context(), claims.KeyOf(l.net))
		return errors.Join(err, checkUsed(t, l.env, l.net, 0), checkNoEntries(t, l.env, l.net))
	})
}

// reclaimNode does what the controller does some time after a Node was deleted.
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
	eventually(t, "the node is evicted", func() error {
		_, err := l.collector.Evict(t.Context(), claims.KeyOf(l.net), map[string]string{h.name: h.uid})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("it had no DanmEps")
		}
		return err
	})
}
