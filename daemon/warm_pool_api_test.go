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
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// enableWarmPool are the flags of a daemon that keeps addresses ready.
func enableWarmPool(n *node) {
	n.args = append(n.args, "--warm-pool-limit=64", "--address-cooldown=1s")
}

// fillWarmPool waits until addresses are ready.
func (n *node) fillWarmPool() {
	n.t.Helper()
	eventually(n.t, "addresses to be ready", func(ctx context.Context) error {
		held, err := n.metric(ctx, "patchbay_addresses_warm")
		if err == nil && held == 0 {
			err = errors.New("none")
		}
		return err
	})
}

// endpoints waits until there are that many DanmEps of a network, and returns them.
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

// listEndpoints returns the DanmEps of a network if there are that many now.
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

// With addresses ready, an ADD is answered although no write reaches the API server.
// What it owes is written afterwards; at the end nothing is left, once the daemon has
// given back what it kept.
func TestWarmAddWritesNothingBeforeItsAnswer(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	enableWarmPool(n)
	g := n.newGate()
	cn := n.network("10.25.0.0/24")
	stop := n.start()
	n.awaitReady()
	first, second := n.pod(ns, asks(cn, "dynamic")), n.pod(ns, asks(cn, "dynamic"))
	if _, err := n.call("ADD", first); err != nil {
		t.Fatal(err)
	}
	n.fillWarmPool()
	n.endpoints(cn, 1)
	n.expectMetric(t, `patchbay_claims_total{source="warm_pool"}`, 0)

	reopen := g.shut()
	t.Cleanup(reopen)
	result, err := n.call("ADD", second)
	if err != nil {
		t.Fatalf("ADD while no write passes: %v", err)
	}
	want := result.IPs[0].Address.String()
	if got := second.eth0(t); got != want {
		t.Errorf("eth0 has %s, the result says %s", got, want)
	}
	n.expectMetric(t, `patchbay_claims_total{source="warm_pool"}`, 1)
	if eps := n.endpoints(cn, 1); eps[0].Spec.Interface.Address == want {
		t.Errorf("%s was in use already", want)
	}
	eventually(t, "the DanmEp to wait at the gate", func(context.Context) error {
		if !g.waits("danmeps") {
			return errors.New("it does not")
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

// A daemon that cannot give back what it kept ends in time all the same. Its next life
// takes over what stayed with the node.
func TestEndIsBoundedWithoutTheAPIServer(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	n.lastWrites = defaultReleaseTimeout
	enableWarmPool(n)
	g := n.newGate()
	cn := n.network("10.31.0.0/24")
	stop := n.start()
	n.awaitReady()
	p := n.pod(ns, asks(cn, "dynamic"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	n.fillWarmPool()
	n.endpoints(cn, 1)
	reopen := g.shut()
	t.Cleanup(reopen)
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the end took %s: kubelet kills after 30 s", took)
	}
	if got := n.used(t.Context(), cn); !strings.Contains(got, n.name) {
		t.Errorf("the entry is gone although no write passed: %s", got)
	}
	reopen()
	n.lastWrites = patience
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

// A DanmEp that was torn away comes back with its address, which nobody else gets
// meanwhile: the network waits for all nodes to say what they use.
func TestTornEndpointKeepsItsAddress(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.26.0.0/30") // two addresses
	n.start()
	n.awaitReady()
	p := n.pod(ns, asks(cn, "10.26.0.1"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	torn := n.endpoints(cn, 1)[0]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(env.Client.Patch(t.Context(), &torn, patch), env.Client.Delete(t.Context(), &torn)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the DanmEp to come back, and the node to report a rollback", func(ctx context.Context) error {
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
			return err
		}
		eps, err := n.listEndpoints(ctx, cn, 1)
		if err != nil {
			return err
		}
		if eps[0].UID == torn.UID || eps[0].Spec.Interface.Address != "10.26.0.1/30" {
			return fmt.Errorf("DanmEp %s has %s", eps[0].UID, eps[0].Spec.Interface.Address)
		}
		if r := cn.Status.IPAM.Held[n.name].Rollback; r == nil || r.Reason != v1.RollbackDanmEpMissing {
			return fmt.Errorf("entry %+v, want a report of the rollback", cn.Status.IPAM.Held[n.name])
		}
		return nil
	})
	other := n.pod(ns, asks(cn, "10.26.0.2"))
	if _, err := n.call("ADD", other); err == nil {
		t.Error("a network that recovers gave out an address")
	}
	net, err := network.FromClusterNetwork(cn)
	if err != nil {
		t.Fatal(err)
	}
	steward := claims.NewSteward(kube.NewStore(env.Client), claims.StewardConfig{})
	eventually(t, "the recovery to be over, as the controller does it", func(ctx context.Context) error {
		awaited, err := steward.Recover(ctx, claims.KeyOf(net), []string{n.name}, nil)
		if err == nil && len(awaited) > 0 {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&cn.ObjectMeta, v1.RecoveringAnnotation, cn.Status.IPAM.Recovering.StartTime.String())
			return errors.Join(env.Client.Update(ctx, cn), fmt.Errorf("awaited: %v", awaited))
		}
		return err
	})
	if err := other.again(); err != nil {
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

// A node that has nothing of a network reports to its recovery all the same.
func TestIdleNodeReportsToARecovery(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	before, during := n.network("10.28.0.0/24"), n.network("10.29.0.0/24")
	recoverNow := func(cn *v1.ClusterNetwork) {
		t.Helper()
		eventually(t, "the recovery to begin", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			cn.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro(), ReportedNodes: []string{"another"}}}
			return env.Client.Status().Update(ctx, cn)
		})
		eventually(t, "the network to be marked, as the controller does", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&cn.ObjectMeta, v1.RecoveringAnnotation, "now")
			return env.Client.Update(ctx, cn)
		})
	}
	reported := func(cn *v1.ClusterNetwork) {
		t.Helper()
		eventually(t, "the node to report", func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(cn), cn); err != nil {
				return err
			}
			if r := cn.Status.IPAM.Recovering; r == nil || !slices.Contains(r.ReportedNodes, n.name) || !slices.Contains(r.ReportedNodes, "another") {
				return fmt.Errorf("recovering: %+v", r)
			}
			return nil
		})
	}
	recoverNow(before)
	n.start()
	n.awaitReady()
	reported(before)
	recoverNow(during)
	reported(during)
}
