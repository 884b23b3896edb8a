// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func readyConditions() []metav1.Condition {
	return []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Up", Message: "up", LastTransitionTime: metav1.Now(),
	}}
}

// store creates an object with its status and returns it.
func store[T client.Object](t *testing.T, env *apitest.Env, o T) T {
	t.Helper()
	status, ok := o.DeepCopyObject().(T)
	if !ok {
		t.Fatalf("a copy of %T has another type", o)
	}
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, ok := client.Object(o).(*v1.DanmEp); ok {
		return o // it has no status
	}
	status.SetResourceVersion(o.GetResourceVersion())
	status.SetUID(o.GetUID())
	if err := env.Client.Status().Update(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	return o
}

// What kubectl get shows of each kind, age left out.
func TestColumns(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	spec := v1.NetworkSpec{NetworkID: "blue", NetworkType: "macvlan", Options: v1.NetworkOptions{
		Device: "ens4", VLAN: 500, CIDR: "10.5.0.0/16", Net6: "fd00:5::/64",
	}}
	status := v1.NetworkStatus{Conditions: readyConditions(), Pools: []v1.PoolStatus{
		{Family: "IPv4", Capacity: 65534, InUse: 7, Free: 65527}, {Family: "IPv6", Capacity: 1 << 62, Free: 1 << 62},
	}}
	networkColumns := []string{"macvlan", "blue", "500", "10.5.0.0/16", "fd00:5::/64", "7", "65527", "65534", "True"}
	meta := metav1.ObjectMeta{Name: apitest.Name("blue"), Namespace: ns}
	cluster := metav1.ObjectMeta{Name: meta.Name}

	cases := map[string]struct {
		reason string
		object client.Object
		want   []string
	}{
		"ClusterNetwork": {
			reason: "A netadmin sees where it is and how full.",
			object: store(t, env, &v1.ClusterNetwork{ObjectMeta: cluster, Spec: spec, Status: status}), want: networkColumns,
		},
		"DanmNet": {
			reason: "The same.", want: networkColumns,
			object: store(t, env, &v1.DanmNet{ObjectMeta: meta, Spec: spec, Status: status}),
		},
		"TenantNetwork": {
			reason: "The same.", want: networkColumns,
			object: store(t, env, &v1.TenantNetwork{ObjectMeta: meta, Spec: spec, Status: status}),
		},
		"TenantConfig": {
			reason: "A column shows only the first entry of a list, so there is none for devices.", want: []string{},
			object: store(t, env, &v1.TenantConfig{
				ObjectMeta: cluster, HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: "1-9"}, {Name: "ens5"}},
			}),
		},
		"NodeNetwork": {
			reason: "Whether all links are up, else what is wrong.", want: []string{"True", "v1.2.3", "up"},
			object: store(t, env, &v1.NodeNetwork{ObjectMeta: cluster, Status: v1.NodeNetworkStatus{
				Conditions: readyConditions(), Version: "v1.2.3",
			}}),
		},
		"DanmEp": {
			reason: "Who has which address.",
			want:   []string{"web-0", "eth1", "ClusterNetwork", "blue", "10.5.0.9/16", "fd00:5::9/64", "node-1"},
			object: store(t, env, &v1.DanmEp{ObjectMeta: meta, Spec: v1.DanmEpSpec{
				NetworkName: "blue", APIType: v1.KindClusterNetwork, EndpointID: "e", Host: "node-1", Pod: "web-0", CID: "c",
				Interface: v1.DanmEpInterface{Name: "eth1", Address: "10.5.0.9/16", AddressIPv6: "fd00:5::9/64"},
			}}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := env.Kubectl(t, "get", name, tc.object.GetName(), "-n", tc.object.GetNamespace(), "--no-headers")
			fields := strings.Fields(line)
			if len(fields) < 2 {
				t.Fatalf("kubectl get: got %q", line)
			}
			if diff := cmp.Diff(tc.want, fields[1:len(fields)-1]); diff != "" {
				t.Errorf("%s\ncolumns between name and age: -want +got\n%s\n%s", tc.reason, diff, line)
			}
		})
	}
}
