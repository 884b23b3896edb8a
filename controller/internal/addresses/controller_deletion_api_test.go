// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The end of the last user removes the finalizer of a deleted network, without a sweep.
func TestDeletionEndsWithTheLastUser(t *testing.T) {
	env := apitest.Start(t)
	f := startWith(t, env, func(cfg *Config) { cfg.SweepInterval, cfg.MinInterval = time.Hour, time.Hour })
	ns, node := env.Namespace(t), f.node(apitest.Name("node"))
	held := map[string]v1.HeldAddresses{
		node.Name:     {UID: string(node.UID), Seq: 1, V4: "10.9.0.3"},
		"!quarantine": {UID: "none", V4: "10.9.0.5"},
	}
	cases := map[string]struct {
		reason string
		status *v1.IPAMStatus
		end    func(t *testing.T, cn *v1.ClusterNetwork, ep *v1.DanmEp)
		ep     bool
	}{
		"Entry": {
			reason: "A node released its addresses. An address in quarantine is no user.",
			status: &v1.IPAMStatus{V4: bitmap(3, 5), Held: held},
			end: func(_ *testing.T, cn *v1.ClusterNetwork, _ *v1.DanmEp) {
				f.write(cn, func(s *v1.NetworkStatus) { delete(s.IPAM.Held, node.Name) })
			},
		},
		"DanmEp": {
			reason: "A Pod without an address was deleted, which writes nothing to the network.",
			status: &v1.IPAMStatus{}, ep: true,
			end: func(t *testing.T, _ *v1.ClusterNetwork, ep *v1.DanmEp) {
				t.Helper()
				if _, err := kube.RemoveEndpoint(t.Context(), env.Client, ep); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cn := f.network(tc.status)
			protect := client.RawPatch(client.Merge.Type(), []byte(`{"metadata": {"finalizers": ["danm.io/in-use"]}}`))
			if err := env.Client.Patch(t.Context(), cn, protect); err != nil {
				t.Fatal(err)
			}
			var ep *v1.DanmEp
			if tc.ep {
				ep = f.endpoint(ns, cn, node, "")
			}
			if err := env.Client.Delete(t.Context(), cn); err != nil {
				t.Fatal(err)
			}
			gone := func(ctx context.Context) error {
				err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), &v1.ClusterNetwork{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("%s\nget the network: got %w, want it gone", tc.reason, err)
			}
			// The wait is as long as a wrong controller needs to remove the finalizer too early.
			for end := time.Now().Add(4 * deletionInterval); time.Now().Before(end); time.Sleep(deletionInterval) {
				if gone(t.Context()) == nil {
					t.Fatal("the network is gone under its last user")
				}
			}
			begin := time.Now()
			tc.end(t, cn, ep)
			f.eventually("the network's end", gone)
			t.Logf("gone %s after its last user", time.Since(begin).Round(time.Millisecond))
		})
	}
}

// A network that only a DanmEp of DANM names gets the finalizer, and status.ipam, without which nodes
// would wait for each other. It goes after the DanmEp.
func TestNetworkOfDANMsPodsStays(t *testing.T) {
	env := apitest.Start(t)
	ns := env.Namespace(t)
	danmEp := func(network string) *v1.DanmEp {
		t.Helper()
		ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("ep")}}
		ep.Spec = v1.DanmEpSpec{
			NetworkName: network, APIType: v1.KindClusterNetwork, Host: "n1", Pod: "web", EndpointID: "x", CID: "y",
			Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.9.0.3/29"},
		}
		if err := env.Client.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		return ep
	}
	cases := map[string]struct {
		reason string
		change func(*Config)
		// wait is the time from the network's creation to that of the DanmEp.
		wait time.Duration
	}{
		"Event": {reason: "A Pod of DANM starts, and no sweep follows.", wait: time.Second, change: func(cfg *Config) {
			cfg.SweepInterval, cfg.MinInterval, cfg.PoolInterval = time.Hour, time.Hour, 100*time.Millisecond
		}},
		"Sweep": {reason: "The event was lost: the controller was not running.", change: func(cfg *Config) {
			cfg.MinInterval, cfg.PoolInterval = time.Hour, time.Hour
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, env, tc.change)
			cn := f.network(nil)
			time.Sleep(tc.wait)
			ep := danmEp(cn.Name)
			f.eventually("the finalizer", func(ctx context.Context) error {
				if got := f.get(ctx, cn); !slices.Contains(got.Finalizers, v1.InUseFinalizer) || got.Status.IPAM == nil {
					return fmt.Errorf("%s\ngot finalizers %v and status.ipam %v", tc.reason, got.Finalizers, got.Status.IPAM)
				}
				return nil
			})
			if err := env.Client.Delete(t.Context(), cn); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * deletionInterval) // as long as a wrong controller needs
			if got := f.get(t.Context(), cn); got.DeletionTimestamp == nil {
				t.Errorf("got %v, want a network in deletion", got)
			}
			if err := env.Client.Delete(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
			f.eventually("the network's end", func(ctx context.Context) error {
				err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), &v1.ClusterNetwork{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("get the network: got %w, want it gone", err)
			})
		})
	}
}
