// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// enableWarmPool enables the warm pool of the node's daemon.
func enableWarmPool(n *node) {
	n.args = append(n.args, "--warm-pool-limit=64", "--address-cooldown=1s")
}

// fillWarmPool waits until the warm pool has addresses.
func (n *node) fillWarmPool() {
	n.t.Helper()
	eventually(n.t, "addresses in the warm pool", func(ctx context.Context) error {
		warm, err := n.metric(ctx, "patchbay_addresses_warm")
		if err == nil && warm == 0 {
			err = errors.New("none")
		}
		return err
	})
}

// endpoints waits until a network has that many DanmEps, and returns them.
func (n *node) endpoints(cn *v1.ClusterNetwork, want int) []v1.DanmEp {
	n.t.Helper()
	var eps []v1.DanmEp
	eventually(n.t, "the DanmEps", func(ctx context.Context) error {
		var err error
		eps, err = n.listEndpoints(ctx, cn, want)
		return err
	})
	return eps
}

// listEndpoints returns the DanmEps of a network, and an error if it has another number of them.
func (n *node) listEndpoints(ctx context.Context, cn *v1.ClusterNetwork, want int) ([]v1.DanmEp, error) {
	eps := &v1.DanmEpList{}
	if err := n.env.Client.List(ctx, eps, client.MatchingFields{"spec.NetworkName": cn.Name}); err != nil {
		return nil, err
	}
	if len(eps.Items) != want {
		return nil, fmt.Errorf("%d DanmEps, want %d", len(eps.Items), want)
	}
	return eps.Items, nil
}

// With addresses in the warm pool, an ADD succeeds although no write reaches the API server. The daemon
// writes the DanmEp later. Nothing remains after the daemon has released the warm pool.
func TestWarmAddWritesNothingBeforeItsAnswer(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	enableWarmPool(n)
	g := n.newWriteGate()
	cn := n.network("10.25.0.0/24")
	stop := n.start()
	n.awaitReady()
	first, second := n.pod(ns, requestInterface(cn, "dynamic")), n.pod(ns, requestInterface(cn, "dynamic"))
	if _, err := n.call("ADD", first); err != nil {
		t.Fatal(err)
	}
	n.fillWarmPool()
	n.endpoints(cn, 1)
	n.expectMetric(t, `patchbay_claims_total{source="warm_pool"}`, 0)

	reopen := g.close()
	t.Cleanup(reopen)
	result, err := n.call("ADD", second)
	if err != nil {
		t.Fatalf("ADD while writes are blocked: %v", err)
	}
	want := result.IPs[0].Address.String()
	if got := second.eth0(t); got != want {
		t.Errorf("eth0: got %s, want %s as in the result", got, want)
	}
	n.expectMetric(t, `patchbay_claims_total{source="warm_pool"}`, 1)
	if eps := n.endpoints(cn, 1); eps[0].Spec.Interface.Address == want {
		t.Errorf("got a DanmEp with %s before its write, want none", want)
	}
	eventually(t, "the write of the DanmEp to be blocked", func(context.Context) error {
		if !g.hasBlocked("danmeps") {
			return errors.New("not yet")
		}
		return nil
	})
	reopen()
	n.endpoints(cn, 2)
	for _, p := range []*pod{first, second} {
		if _, err := n.call("DEL", p); err != nil {
			t.Fatal(err)
		}
	}
	n.endpoints(cn, 0)
	n.awaitNoPendingWrites() // the address is freed after its DanmEp
	stop()
	n.awaitUnused(cn)
}

// A daemon that cannot release its warm pool still ends in time. The next daemon takes over the
// addresses of the node's entry.
func TestEndIsBoundedWithoutTheAPIServer(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	n.releaseTimeout = defaultReleaseTimeout
	enableWarmPool(n)
	g := n.newWriteGate()
	cn := n.network("10.31.0.0/24")
	stop := n.start()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "dynamic"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	n.fillWarmPool()
	n.endpoints(cn, 1)
	reopen := g.close()
	t.Cleanup(reopen)
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("got %s until the end, want at most 30s, after which kubelet kills the daemon", took)
	}
	if got := n.used(t.Context(), cn); !strings.Contains(got, n.name) {
		t.Errorf("got %s, want the entry of the node", got)
	}
	reopen()
	n.releaseTimeout = eventuallyTimeout
	stop = n.start()
	n.awaitReady()
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.endpoints(cn, 0)
	n.awaitNoPendingWrites() // the address is freed after its DanmEp
	stop()
	n.awaitUnused(cn)
}

// A missing DanmEp is created again with its address. No other Pod gets the address meanwhile, because
// the network recovers until all nodes have reported their addresses.
func TestMissingEndpointKeepsItsAddress(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.26.0.0/30") // two addresses
	n.start()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "10.26.0.1"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	deleted := n.endpoints(cn, 1)[0]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(env.Client.Patch(t.Context(), &deleted, patch), env.Client.Delete(t.Context(), &deleted)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the DanmEp to be created again, and the node to report a rollback", func(ctx context.Context) error {
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
			return err
		}
		eps, err := n.listEndpoints(ctx, cn, 1)
		if err != nil {
			return err
		}
		if eps[0].UID == deleted.UID || eps[0].Spec.Interface.Address != "10.26.0.1/30" {
			return fmt.Errorf("DanmEp %s has %s", eps[0].UID, eps[0].Spec.Interface.Address)
		}
		if r := cn.Status.IPAM.Held[n.name].Rollback; r == nil || r.Reason != v1.RollbackDanmEpMissing {
			return fmt.Errorf("entry %+v has no report of a rollback", cn.Status.IPAM.Held[n.name])
		}
		return nil
	})
	other := n.pod(ns, requestInterface(cn, "10.26.0.2"))
	if _, err := n.call("ADD", other); err == nil {
		t.Error("ADD on a recovering network: got no error, want one")
	}
	net, err := network.FromClusterNetwork(cn)
	if err != nil {
		t.Fatal(err)
	}
	collector := gc.NewCollector(kube.NewStore(env.Client), gc.Config{})
	eventually(t, "the recovery to end, as run by the controller", func(ctx context.Context) error {
		awaited, err := collector.Recover(ctx, network.KeyOf(net), []string{n.name}, nil)
		if err == nil && len(awaited) > 0 {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&cn.ObjectMeta, v1.RecoveringAnnotation, cn.Status.IPAM.Recovering.StartTime.String())
			return errors.Join(env.Client.Update(ctx, cn), fmt.Errorf("awaited: %v", awaited))
		}
		return err
	})
	if err := other.newSandbox(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.call("ADD", other); err != nil {
		t.Error(err)
	}
	for _, p := range []*pod{p, other} {
		if _, err := n.call("DEL", p); err != nil {
			t.Error(err)
		}
	}
	n.awaitUnused(cn)
}

// A node without addresses of a network reports to its recovery too.
func TestIdleNodeReportsToARecovery(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	before, during := n.network("10.28.0.0/24"), n.network("10.29.0.0/24")
	startRecovery := func(cn *v1.ClusterNetwork) {
		t.Helper()
		eventually(t, "the recovery to begin", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			cn.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro(), ReportedNodes: []string{"other-node"}}}
			return env.Client.Status().Update(ctx, cn)
		})
		eventually(t, "the annotation of the controller", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&cn.ObjectMeta, v1.RecoveringAnnotation, "now")
			return env.Client.Update(ctx, cn)
		})
	}
	expectReport := func(cn *v1.ClusterNetwork) {
		t.Helper()
		eventually(t, "the node to report", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			if r := cn.Status.IPAM.Recovering; r == nil || !slices.Contains(r.ReportedNodes, n.name) || !slices.Contains(r.ReportedNodes, "other-node") {
				return fmt.Errorf("recovering: %+v", r)
			}
			return nil
		})
	}
	startRecovery(before)
	n.start()
	n.awaitReady()
	expectReport(before)
	startRecovery(during)
	expectReport(during)
}
