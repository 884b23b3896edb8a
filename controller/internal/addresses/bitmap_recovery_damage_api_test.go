// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// victims is a network 10.9.0.0/29 and fd09::/125 whose six addresses of each family belong to one
// node: those of four Pods by their DanmEps, those of two starting Pods by the node's entry.
type victims struct {
	*fixture
	cn        *v1.ClusterNetwork
	net       *network.Network
	namespace string
	endpoints []*v1.DanmEp
	// live are the Pods' addresses, held those in the entry.
	live, held []netip.Addr
}

func newVictims(f *fixture) *victims {
	f.Helper()
	v := &victims{fixture: f, namespace: f.env.Namespace(f.T)}
	name := apitest.Name("net")
	v.cn = &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NetworkSpec{
		NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
		Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/29", Net6: "fd09::/125"},
	}}
	if err := f.env.Client.Create(f.Context(), v.cn); err != nil {
		f.Fatal(err)
	}
	var err error
	if v.net, err = network.FromObject(v.cn); err != nil {
		f.Fatal(err)
	}
	node := f.node(apitest.Name("victim"))
	a := v.allocator(node)
	for i := range 6 {
		a4, a6, err := a.Claim(f.Context(), v.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{Dynamic: true})
		if err != nil {
			f.Fatal(err)
		}
		if i > 3 {
			v.held = append(v.held, a4, a6)
			continue
		}
		v.live = append(v.live, a4, a6)
		ep := v.publish(node, fmt.Sprint("victim-", i), a4, a6)
		v.endpoints = append(v.endpoints, ep)
		a.MarkPublished(network.KeyOf(v.net), ep.Name, a4, a6)
	}
	if err := a.ReconcileEntries(f.Context(), network.KeyOf(v.net)); err != nil {
		f.Fatal(err)
	}
	f.eventually("the entry to have what no DanmEp has", func(ctx context.Context) error {
		if got := f.get(ctx, v.cn).Status.IPAM.Held[node.Name]; got.V4 != "10.9.0.5-10.9.0.6" {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	return v
}

// allocator returns a node's allocator, with the node's rights.
func (v *victims) allocator(node *corev1.Node) *allocator.Allocator {
	a := allocator.New(kube.NewStore(v.env.As(v, apitest.NodeDaemon(node.Name))), allocator.Config{
		Node: node.Name, NodeUID: string(node.UID), Incarnation: 1, WarmPoolSize: -1, Cooldown: -1, FlushDelay: 50 * time.Millisecond, ReclaimTimeout: 200 * time.Millisecond,
	})
	v.Cleanup(a.Close)
	return a
}

// publish creates the DanmEp of a Pod.
func (v *victims) publish(node *corev1.Node, pod string, a4, a6 netip.Addr) *v1.DanmEp {
	v.Helper()
	ep := v.endpoint(v.namespace, v.cn, node, a4.String()+"/29")
	ep.Spec.Pod, ep.Spec.PodUID, ep.Spec.Interface.AddressIPv6 = pod, "uid-of-"+pod, a6.String()+"/125"
	if err := v.env.Client.Update(v.Context(), ep); err != nil {
		v.Fatal(err)
	}
	return ep
}

// attack clears bits with the rights of another node, and makes the numbers match.
func (v *victims) attack(addrs ...netip.Addr) {
	v.Helper()
	hostile := v.env.As(v, apitest.NodeDaemon("hostile"))
	v.eventually("the attack", func(ctx context.Context) error {
		cn := v.get(ctx, v.cn)
		for _, a := range addrs {
			b := cn.Status.IPAM.V4
			if a.Is6() {
				b = cn.Status.IPAM.V6
			}
			if err := ipamtest.Flip(b, a); err != nil {
				return err
			}
			b.Allocated--
		}
		return hostile.Status().Update(ctx, cn)
	})
}

// A compromised node clears the bits of another node's addresses. A third node never gets those
// that an entry covers, and none of a Pod's after the controller has audited the network a moment
// later.
func TestClearedBitsComeBack(t *testing.T) {
	env := apitest.New(t) // alone, since other tests' controllers would correct it, too
	f := startWith(t, env, func(cfg *Config) { cfg.SweepInterval = time.Hour })
	v := newVictims(f)
	third := v.allocator(f.node("third"))
	expectError := func(what string) {
		t.Helper()
		a4, a6, err := third.Claim(t.Context(), v.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{Dynamic: true})
		if !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("%s: a third node got %v, %v, %v, want ErrExhausted", what, a4, a6, err)
		}
	}
	v.attack(v.held...)
	expectError("addresses of starting Pods")
	v.attack(v.live...)
	f.bits(v.cn, 1, 2, 3, 4, 5, 6)
	expectError("addresses of running Pods")
	f.event(v.cn, v1.ReasonBitmapDamaged, "8 addresses in use were marked as free")
	if got := f.sum("patchbay_ipam_drift_total"); got < 8 { // and what starts, if it was faster than the claim
		t.Errorf("%v bits are counted as drift, want 8 at least", got)
	}
}

// A claim before that audit creates a duplicate. The condition names both Pods, each gets an Event,
// the metric counts it, and all of it ends when one Pod is gone.
func TestDuplicatesAreReported(t *testing.T) {
	env := apitest.New(t) // alone, for its metric
	f := &fixture{T: t, env: env}
	v := newVictims(f)
	v.attack(v.live[:2]...)
	node := f.node("third")
	a := v.allocator(node)
	a4, a6, err := a.Claim(t.Context(), v.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{Dynamic: true})
	if err != nil || a4 != v.live[0] || a6 != v.live[1] {
		t.Fatalf("the attack failed without a controller: got %v, %v, %v", a4, a6, err)
	}
	v.fixture = start(t, env)
	v.condition(v.cn, v1.ConditionAddressConflict, metav1.ConditionTrue, v1.ReasonDuplicateAddress,
		fmt.Sprintf("%v: node third, by its entry in status.ipam.held and Pod %s/victim-0 on node %s", a4, v.namespace, v.endpoints[0].Spec.Host))
	twin := v.publish(node, "twin", a4, a6)
	a.MarkPublished(network.KeyOf(v.net), twin.Name, a4, a6)
	for _, addr := range []netip.Addr{a4, a6} {
		v.condition(v.cn, v1.ConditionAddressConflict, metav1.ConditionTrue, v1.ReasonDuplicateAddress,
			fmt.Sprintf("%v: Pod %s/twin on node third and Pod %s/victim-0 on node %s", addr, v.namespace, v.namespace, v.endpoints[0].Spec.Host))
	}
	v.podEvent("uid-of-twin", "is also used by Pod victim-0")
	v.podEvent("uid-of-victim-0", "is also used by Pod twin")
	v.conflicts(2)
	key := network.KeyOf(v.net)
	if err := a.ReturnToEntry(t.Context(), key, twin.Name, a4, a6); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.RemoveEndpoint(t.Context(), env.Client, twin); err != nil {
		t.Fatal(err)
	}
	if err := a.Free(t.Context(), key, twin.Name, a4, a6); err != nil {
		t.Fatal(err)
	}
	v.condition(v.cn, v1.ConditionAddressConflict, "", "", "")
	v.bits(v.cn, 1, 2, 3, 4, 5, 6) // the release cleared the survivor's, too
	v.conflicts(0)
}

// conflicts waits until the metric has a value.
func (f *fixture) conflicts(want float64) {
	f.Helper()
	f.eventually(fmt.Sprint(want, " conflicts to be counted"), func(context.Context) error {
		if got := f.sum("patchbay_address_conflicts"); got != want {
			return fmt.Errorf("%v are counted", got)
		}
		return nil
	})
}

// sum returns the sum of a metric's values.
func (f *fixture) sum(metric string) float64 {
	f.Helper()
	all, err := f.metrics.Gather()
	if err != nil {
		f.Fatal(err)
	}
	sum := 0.0
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == metric {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// podEvent waits for the Event DuplicateAddress on a Pod.
func (f *fixture) podEvent(uid, text string) {
	f.Helper()
	f.eventually("an Event on the Pod "+uid, func(ctx context.Context) error {
		for _, e := range f.duplicates(ctx) {
			if string(e.InvolvedObject.UID) == uid && e.InvolvedObject.Kind == "Pod" && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// duplicates returns the Events DuplicateAddress.
func (f *fixture) duplicates(ctx context.Context) []corev1.Event {
	f.Helper()
	list := &corev1.EventList{}
	if err := f.env.Client.List(ctx, list, client.MatchingFields{"reason": v1.ReasonDuplicateAddress}); err != nil {
		f.Error(err)
	}
	return list.Items
}
