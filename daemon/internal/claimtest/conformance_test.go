// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The product's store passes the conformance suite, which the fake of the other tests passes as well.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, err := kubeclient.Connect(env.Config, "any")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ipamtest.Run(t, kind, func(*testing.T) ipamtest.Harness { return storeHarness{env, kube.NewStore(c.Direct)} })
		})
	}
}

// storeHarness changes objects as users and node daemons do.
type storeHarness struct {
	env   *apitest.Env
	store allocator.Store
}

// Store implements ipamtest.Harness.
func (h storeHarness) Store() allocator.Store { return h.store }

// Create implements ipamtest.Harness.
func (h storeHarness) Create(t *testing.T, ref network.Ref, cidr string) *network.Network {
	t.Helper()
	o := emptyNetwork(t, ref)
	spec := v1.NetworkSpec{NetworkID: "net", NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{CIDR: cidr}}
	switch o := o.(type) {
	case *v1.ClusterNetwork:
		o.Spec = spec
	case *v1.DanmNet:
		o.Spec = spec
	case *v1.TenantNetwork:
		o.Spec = spec
	}
	h.create(t, o)
	n, err := network.FromObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Delete implements ipamtest.Harness.
func (h storeHarness) Delete(t *testing.T, ref network.Ref) {
	t.Helper()
	if err := h.env.Client.Delete(t.Context(), emptyNetwork(t, ref)); err != nil {
		t.Fatal(err)
	}
}

// AddEndpoint implements ipamtest.Harness.
func (h storeHarness) AddEndpoint(t *testing.T, ref network.Ref, ep status.Endpoint) {
	t.Helper()
	h.create(t, &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Namespace: ep.Namespace, Name: ep.Name},
		Spec: v1.DanmEpSpec{
			NetworkName: ref.Name, NetworkUID: ep.NetworkUID, APIType: ref.Kind, EndpointID: ep.ID, Host: ep.Node,
			Pod: ep.Pod, PodUID: ep.PodUID, CID: "sandbox",
			Interface: v1.DanmEpInterface{Name: "eth0", Address: withPrefixLength(ep.V4, 24), AddressIPv6: withPrefixLength(ep.V6, 64)},
		},
	})
}

// withPrefixLength returns an address in the form of a DanmEp, and an empty text without an address.
func withPrefixLength(a netip.Addr, bits int) string {
	if !a.IsValid() {
		return ""
	}
	return netip.PrefixFrom(a, bits).String()
}

// create creates an object, and deletes it at the end of the test.
func (h storeHarness) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := h.env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		removeFinalizers := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		for _, err := range []error{h.env.Client.Patch(ctx, o, removeFinalizers), h.env.Client.Delete(ctx, o)} {
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
}

// emptyNetwork returns an empty network object.
func emptyNetwork(t *testing.T, ref network.Ref) client.Object {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.Kind {
	case v1.KindClusterNetwork:
		return &v1.ClusterNetwork{ObjectMeta: meta}
	case v1.KindDanmNet:
		return &v1.DanmNet{ObjectMeta: meta}
	case v1.KindTenantNetwork:
		return &v1.TenantNetwork{ObjectMeta: meta}
	}
	t.Fatalf("%s: kind must be a network", ref)
	return nil
}
