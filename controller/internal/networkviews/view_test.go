// SPDX-License-Identifier: Apache-2.0

package networkviews

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func clusterNetwork(name string, change func(*v1.ClusterNetwork)) *v1.ClusterNetwork {
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.NetworkSpec{NetworkID: "id", NetworkType: "MACVLAN", Options: v1.NetworkOptions{Device: "ens4", VLAN: 5}},
	}
	if change != nil {
		change(cn)
	}
	return cn
}

func TestViewOf(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	cases := map[string]struct {
		reason   string
		networks []client.Object
		want     []v1.ViewedNetwork
	}{
		"None": {reason: "A namespace without a network has an empty view."},
		"Physical": {
			reason:   "The view has neither the device nor the VLAN nor the NetworkID.",
			networks: []client.Object{clusterNetwork("a", nil)},
			want:     []v1.ViewedNetwork{{Kind: "ClusterNetwork", Name: "a", Type: "macvlan", Ready: "Unknown"}},
		},
		"Addresses": {
			reason: "The free addresses of each family are there, but not who has the others.",
			networks: []client.Object{clusterNetwork("a", func(cn *v1.ClusterNetwork) {
				cn.Spec.Options.CIDR, cn.Spec.Options.Net6 = "10.0.0.0/24", "fd00::/64"
				cn.Status.Pools = []v1.PoolStatus{{Family: "IPv4", Capacity: 250, InUse: 9, Warm: 5, Free: 236}, {Family: "IPv6", Capacity: 9, Free: 9}}
				cn.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Message: "node-3: ens4 not found"}}
			})},
			want: []v1.ViewedNetwork{{
				Kind: "ClusterNetwork", Name: "a", Type: "macvlan", CIDR: "10.0.0.0/24", Net6: "fd00::/64", Ready: "False",
				Pools: []v1.ViewedPool{{Family: "IPv4", Capacity: 250, Free: 236}, {Family: "IPv6", Capacity: 9, Free: 9}},
			}},
		},
		"Closed": {
			reason: "A tenant sees no network of others, not even its name.",
			networks: []client.Object{
				clusterNetwork("blue", func(cn *v1.ClusterNetwork) { cn.Spec.AllowedTenants = []string{"blue"} }),
				clusterNetwork("both", func(cn *v1.ClusterNetwork) { cn.Spec.AllowedTenants = []string{"blue", "red"} }),
				&v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "b"}, Spec: v1.NetworkSpec{NetworkID: "b"}},
			},
			want: []v1.ViewedNetwork{{Kind: "ClusterNetwork", Name: "both", Type: "macvlan", Ready: "Unknown"}},
		},
		"Own": {
			reason: "The namespace's own networks come after ClusterNetworks.",
			networks: []client.Object{
				&v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "a"}, Spec: v1.NetworkSpec{NetworkID: "b", Options: v1.NetworkOptions{Device: "ens4"}}},
				clusterNetwork("z", nil),
			},
			want: []v1.ViewedNetwork{
				{Kind: "ClusterNetwork", Name: "z", Type: "macvlan", Ready: "Unknown"},
				{Kind: "DanmNet", Name: "a", Type: "ipvlan", Ready: "Unknown"},
			},
		},
		"Unusable": {
			reason: "No Pod can join an invalid network, or one in deletion.",
			networks: []client.Object{
				clusterNetwork("invalid", func(cn *v1.ClusterNetwork) { cn.Spec.NetworkID = "" }),
				clusterNetwork("deleting", func(cn *v1.ClusterNetwork) { cn.DeletionTimestamp = &now }),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := viewOf("red", viewablesOf(tc.networks...))
			if diff := cmp.Diff(tc.want, got.Networks); diff != "" || got.Count != int64(len(tc.want)) {
				t.Errorf("%s: count %d, networks -want +got:\n%s", tc.reason, got.Count, diff)
			}
		})
	}
}

func viewablesOf(networks ...client.Object) []viewable {
	var all []viewable
	for _, obj := range networks {
		if v, ok := newViewable(obj); ok {
			all = append(all, v)
		}
	}
	return all
}

func TestViewIsCut(t *testing.T) {
	t.Parallel()
	var networks []client.Object
	for i := range maxNetworks + 3 {
		networks = append(networks, clusterNetwork(fmt.Sprintf("n%03d", i), nil))
	}
	got := viewOf("red", viewablesOf(networks...))
	if len(got.Networks) != maxNetworks || got.Count != maxNetworks+3 {
		t.Errorf("the view has %d networks and the count %d, want %d and %d", len(got.Networks), got.Count, maxNetworks, maxNetworks+3)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	pool := func(free int64) []v1.ViewedPool { return []v1.ViewedPool{{Family: "IPv4", Capacity: 100, Free: free}} }
	view := func(ns string, free int64, networks ...string) *v1.NetworkView {
		v := &v1.NetworkView{ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Count: int64(len(networks))}
		for _, n := range networks {
			v.Networks = append(v.Networks, v1.ViewedNetwork{
				Kind: "ClusterNetwork", Name: n, Type: "macvlan", CIDR: "10.0.0.0/24", Pools: pool(free), Ready: metav1.ConditionUnknown,
			})
		}
		return v
	}
	now := metav1.Now()
	cases := map[string]struct {
		reason   string
		before   *v1.NetworkView
		free     int64
		deleting bool
		want     bool
	}{
		"New":      {reason: "The namespace has no view.", free: 50, want: true},
		"Same":     {reason: "Nothing changed.", before: view("b", 50, "n"), free: 50},
		"Small":    {reason: "5 % are within the tolerance.", before: view("b", 50, "n"), free: 45},
		"Large":    {reason: "6 % are not.", before: view("b", 50, "n"), free: 56, want: true},
		"Emptied":  {reason: "The last address is taken.", before: view("b", 1, "n"), free: 0, want: true},
		"Refilled": {reason: "There is an address again.", before: view("b", 0, "n"), free: 1, want: true},
		"Closed":   {reason: "The view has a network too many.", before: view("b", 50, "m", "n"), free: 50, want: true},
		"Deleting": {reason: "Nothing can be created in the namespace.", free: 50, deleting: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := clusterNetwork("n", func(cn *v1.ClusterNetwork) {
				cn.Spec.Options.CIDR = "10.0.0.0/24"
				cn.Status.Pools = []v1.PoolStatus{{Family: "IPv4", Capacity: 100, Free: tc.free}}
			})
			// The numbers of namespace a differ, its networks do not.
			namespaces := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
			if tc.deleting {
				namespaces[1].DeletionTimestamp = &now
			}
			existing := map[string]*v1.NetworkView{"a": view("a", 99, "n")}
			if tc.before != nil {
				existing["b"] = tc.before
			}
			changes := plan(namespaces, existing, viewablesOf(network))
			got := map[string]int{}
			for i, c := range changes {
				got[c.want.Namespace] = i
			}
			at, ok := got["b"]
			if _, first := got["a"]; !first || ok != tc.want {
				t.Fatalf("%s: %d changes, of b: %v, want %v", tc.reason, len(changes), ok, tc.want)
			}
			if networks := tc.before == nil || tc.before.Count != 1; ok && networks && at != 0 {
				t.Errorf("%s: the change of networks comes after the change of numbers", tc.reason)
			}
		})
	}
}
