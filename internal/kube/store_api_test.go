// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// claim returns a status with one address that a node holds.
func claim() *v1.IPAMStatus {
	return &v1.IPAMStatus{
		V4:   &v1.AddressBitmap{CIDR: "10.9.0.0/24", Cursor: "10.9.0.2", Pages: map[string]string{"0": "Ag=="}},
		Held: map[string]v1.HeldAddresses{node: {UID: "u", Seq: 1, V4: "10.9.0.1"}},
	}
}

func TestStoreWritesOnlyAddresses(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	store := NewStore(connect(t, env))
	cn := clusterNetwork(t, env)
	meta.SetStatusCondition(&cn.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Test", Message: "m"})
	cn.Status.ObservedGeneration = 7
	if err := env.Client.Status().Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}

	o, err := store.Get(t.Context(), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	if o.IPAM != nil {
		t.Errorf("a network without a writer has IPAM %+v, want unknown", o.IPAM)
	}
	if d, ok := o.Extra.(*NetworkDocument); !ok || d.hasUnknown {
		t.Errorf("the Go types do not know all fields of %v: each write would take several times longer", o.Extra)
	}
	o.IPAM = claim()
	written, err := store.Update(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(claim(), written.IPAM); diff != "" {
		t.Errorf("status.ipam as written (-want +got):\n%s", diff)
	}

	got := &v1.ClusterNetwork{}
	if err := env.Client.Get(t.Context(), ObjectKey(ref(cn)), got); err != nil {
		t.Fatal(err)
	}
	if written.ResourceVersion != got.ResourceVersion {
		t.Errorf("Update returned resourceVersion %s, stored is %s", written.ResourceVersion, got.ResourceVersion)
	}
	if diff := cmp.Diff(cn.Spec, got.Spec); diff != "" {
		t.Errorf("a write of status changed the spec (-want +got):\n%s", diff)
	}
	want := cn.Status
	want.IPAM = claim()
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("the rest of status changed (-want +got):\n%s", diff)
	}
}

func TestStoreRefusesWhatIsNotTheNewest(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	store := NewStore(connect(t, env))
	cases := map[string]struct {
		reason string
		change func(*testing.T, *v1.ClusterNetwork, *status.Object)
		want   error
	}{
		"Written": {
			reason: "Another node has claimed since the read.",
			change: func(t *testing.T, _ *v1.ClusterNetwork, o *status.Object) {
				t.Helper()
				other := *o
				other.IPAM = claim()
				if _, err := store.Update(t.Context(), &other); err != nil {
					t.Fatal(err)
				}
			},
			want: status.ErrConflict,
		},
		"Recreated": {
			reason: "The network was deleted and created again.",
			change: func(t *testing.T, cn *v1.ClusterNetwork, _ *status.Object) {
				t.Helper()
				if err := env.Client.Delete(t.Context(), cn); err != nil {
					t.Fatal(err)
				}
				again := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: cn.Name}, Spec: cn.Spec}
				if err := env.Client.Create(t.Context(), again); err != nil {
					t.Fatal(err)
				}
			},
			want: status.ErrConflict,
		},
		"Deleted": {
			reason: "The network was deleted.",
			change: func(t *testing.T, cn *v1.ClusterNetwork, _ *status.Object) {
				t.Helper()
				if err := env.Client.Delete(t.Context(), cn); err != nil {
					t.Fatal(err)
				}
			},
			want: status.ErrNotFound,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cn := clusterNetwork(t, env)
			o, err := store.Get(t.Context(), ref(cn))
			if err != nil {
				t.Fatal(err)
			}
			tc.change(t, cn, o)
			o.IPAM = claim()
			if _, err := store.Update(t.Context(), o); !errors.Is(err, tc.want) {
				t.Errorf("%s: Update: got error %v, want %v", tc.reason, err, tc.want)
			}
			if _, err := store.Protect(t.Context(), o, true); !errors.Is(err, tc.want) {
				t.Errorf("%s: Protect: got error %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestStoreProtects(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	stores := map[bool]*Store{
		true:  NewStore(connect(t, env)),                 // a node sets it
		false: NewStore(env.As(t, apitest.Controller())), // only the controller takes it off
	}
	cn := clusterNetwork(t, env)
	cn.Finalizers = []string{"example.com/other"}
	if err := env.Client.Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cn.Finalizers = nil
		cn.ResourceVersion = ""
		_ = env.Client.Update(t.Context(), cn)
	})
	for _, on := range []bool{true, true, false, false} {
		store := stores[on]
		o, err := store.Get(t.Context(), ref(cn))
		if err != nil {
			t.Fatal(err)
		}
		o, err = store.Protect(t.Context(), o, on)
		if err != nil {
			t.Fatal(err)
		}
		if o.Protected != on {
			t.Errorf("after Protect(%t) the object has Protected %t", on, o.Protected)
		}
		got := &v1.ClusterNetwork{}
		if err := env.Client.Get(t.Context(), ObjectKey(ref(cn)), got); err != nil {
			t.Fatal(err)
		}
		want := []string{"example.com/other"}
		if on {
			want = append(want, v1.InUseFinalizer)
		}
		if diff := cmp.Diff(want, got.Finalizers); diff != "" {
			t.Errorf("finalizers after Protect(%t) (-want +got):\n%s", on, diff)
		}
	}
}

func TestStoreListsTheEndpointsOfOneNetwork(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	store := NewStore(connect(t, env))
	cn, ns := clusterNetwork(t, env), env.Namespace(t)
	add := func(name string, spec v1.DanmEpSpec) (uid string) {
		spec.EndpointID, spec.CID, spec.Pod, spec.PodUID, spec.Host = name, "c", "p", "uid-of-p", node
		spec.Interface.Name = "eth0"
		ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
		if err := env.Client.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		return string(ep.UID)
	}
	ours := add("ours", v1.DanmEpSpec{NetworkName: cn.Name, APIType: v1.KindClusterNetwork, NetworkUID: string(cn.UID),
		Interface: v1.DanmEpInterface{Address: "10.9.0.7/24", AddressIPv6: "fd00::7/64"}})
	danms := add("danms", v1.DanmEpSpec{NetworkName: cn.Name, APIType: v1.KindClusterNetwork,
		Interface: v1.DanmEpInterface{Address: "10.9.0.8/24", AddressIPv6: "none"}})
	add("other-kind", v1.DanmEpSpec{NetworkName: cn.Name, APIType: v1.KindDanmNet})
	add("other-name", v1.DanmEpSpec{NetworkName: "other", APIType: v1.KindClusterNetwork})

	got, err := store.Endpoints(t.Context(), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	want := []status.Endpoint{
		{Namespace: ns, Name: "danms", UID: danms, Pod: "p", PodUID: "uid-of-p", Node: node, ID: "danms", V4: netip.MustParseAddr("10.9.0.8")},
		{Namespace: ns, Name: "ours", UID: ours, Pod: "p", PodUID: "uid-of-p", NetworkUID: string(cn.UID), Node: node, ID: "ours",
			V4: netip.MustParseAddr("10.9.0.7"), V6: netip.MustParseAddr("fd00::7")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("endpoints of %s (-want +got):\n%s", cn.Name, diff)
	}
}

func TestStoreListsAllPages(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	store := NewStore(connect(t, env))
	cn, ns := clusterNetwork(t, env), env.Namespace(t)
	const n = endpointPageSize + 20
	for i := range n {
		name := fmt.Sprint("ep-", i)
		ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1.DanmEpSpec{
			NetworkName: cn.Name, APIType: v1.KindClusterNetwork, EndpointID: name, CID: "c", Pod: "p", Host: node,
			Interface: v1.DanmEpInterface{Name: "eth0"}}}
		if err := env.Client.Create(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.Endpoints(t.Context(), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != n {
		t.Errorf("%d endpoints, want %d", len(got), n)
	}
}
