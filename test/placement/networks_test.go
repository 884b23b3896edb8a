// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// Our own networks are placeable: a ClusterNetwork has each cluster's device and VLAN by
// Customization, a TenantNetwork draws from each cluster's own TenantConfig, and the hub
// hears of addresses by number only: a thousand claims are a few writes there. Nothing
// runs beside it: the admission that it serves refuses other tests' networks.
func TestNetworksArePlaced(t *testing.T) {
	w := shared
	for _, name := range []string{"east", "west"} {
		w.serveAdmission(t, name)
	}
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	for name, nic := range map[string]string{"east": "ens1", "west": "ens2"} {
		w.patchCluster(t, name, fmt.Sprintf(`{"spec":{"properties":{"nic":%q,"vlan":"%s"}}}`, nic, nic[3:]+"00"))
		w.apply(t, w.Clusters[name].Client, "", fmt.Sprintf(`
apiVersion: danm.io/v1
kind: TenantConfig
metadata: {name: %[1]s}
namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
hostDevices: [{name: %[2]s-tenants, vniType: vlan, vniRange: %[3]s00-%[3]s09}]
`, ns, nic, nic[3:]))
	}
	user := &terminal{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		w.deleteAtEnd(t, object("placement.patchbay.io/v1alpha1", "Customization", "patchbay-system", "networks"))
	})
	user.runAll(w.Hub.ControlPlane.AdminKubeconfig(), user.fromPage("metadata: {name: networks,"))
	w.apply(t, w.Hub.Client, ns, fmt.Sprintf(`
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: %[1]s, annotations: {placement.patchbay.io/clusters: "east,west"}}
spec: {NetworkID: shared, NetworkType: ipvlan, Options: {host_device: ens0, cidr: 10.50.0.0/16}}
---
apiVersion: danm.io/v1
kind: TenantNetwork
metadata: {name: blue, annotations: {placement.patchbay.io/clusters: "east,west"}}
spec: {NetworkID: blue, NetworkType: ipvlan, Options: {cidr: 10.60.0.0/24}}
`, ns))
	t.Cleanup(func() { w.deleteAtEnd(t, object("danm.io/v1", "ClusterNetwork", "", ns)) })
	w.awaitDevice(t, "east", object("danm.io/v1", "ClusterNetwork", "", ns), "ens1 100")
	w.awaitDevice(t, "west", object("danm.io/v1", "ClusterNetwork", "", ns), "ens2 200")
	w.awaitDevice(t, "east", object("danm.io/v1", "TenantNetwork", ns, "blue"), "ens1-tenants 100")
	w.awaitDevice(t, "west", object("danm.io/v1", "TenantNetwork", ns, "blue"), "ens2-tenants 200")
	w.checkClaims(t, x, ns)
}

// checkClaims claims a thousand addresses in east as nodes do, and looks at what the hub
// hears of it.
func (w *world) checkClaims(t *testing.T, x *invariantChecker, ns string) {
	t.Helper()
	x.settle(t)
	const addresses, atOnce = 1000, 20
	begin := time.Now()
	w.claimAddresses(t, "east", ns, addresses, atOnce)
	w.reportInUse(t, "east", ns, addresses)
	net := &unstructured.Unstructured{}
	net.SetAPIVersion("danm.io/v1")
	net.SetKind("ClusterNetwork")
	eventually(t, "the hub counts the addresses", func() error {
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: ns}, net); err != nil {
			return err
		}
		if n := addressesInUse(net); n < addresses {
			return fmt.Errorf("%d addresses in use, want %d", n, addresses)
		}
		return nil
	})
	took := time.Since(begin)
	status, _, _ := unstructured.NestedMap(net.Object, "status")
	for field := range status {
		if field != "conditions" && field != "pools" {
			t.Errorf("status at the hub: got field %s, want conditions and pools", field)
		}
	}
	writes, there := 0, 0
	for _, one := range x.read(t) {
		switch {
		case one.cluster == "" && one.isOurs():
			writes++
		case one.cluster == "east" && one.Resource == "clusternetworks":
			there++
		}
	}
	// An agent reports at most once a second; the hub answers with two writes at most.
	if most := 3 * (int(took.Seconds()) + 2); writes > most {
		t.Errorf("got %d writes at the hub in %s, want at most %d", writes, took, most)
	}
	t.Logf("%d addresses in %s: %d writes of the network in east, %d at the hub", addresses, took.Round(time.Millisecond), there, writes)
}

// claimAddresses claims addresses of a ClusterNetwork, as nodes do.
func (w *world) claimAddresses(t *testing.T, cluster, name string, addresses, atOnce int) {
	t.Helper()
	c := w.Clusters[cluster].Client
	o := &v1.ClusterNetwork{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		t.Fatal(err)
	}
	n, err := network.FromObject(o)
	if err != nil {
		t.Fatal(err)
	}
	a := allocator.New(kube.NewStore(c), allocator.Config{Node: "n1", NodeUID: "n1", Incarnation: 1, WarmPoolSize: -1})
	defer a.Close()
	// What a node's daemon does when Pods leave, so that the network can be deleted.
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := c.Patch(context.Background(), object("danm.io/v1", "ClusterNetwork", "", name), patch); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	var g errgroup.Group
	g.SetLimit(atOnce)
	for range addresses {
		g.Go(func() error {
			_, _, err := a.Claim(t.Context(), n, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// reportInUse writes the pool of a ClusterNetwork, as the controller of a cluster does.
func (w *world) reportInUse(t *testing.T, cluster, name string, inUse int64) {
	t.Helper()
	n := object("danm.io/v1", "ClusterNetwork", "", name)
	patch := fmt.Sprintf(`{"status":{"pools":[{"family":"IPv4","capacity":65534,"inUse":%d,"warm":0,"cooldown":0,"reserved":2,"free":%d}]}}`, inUse, 65534-inUse)
	if err := w.Clusters[cluster].Client.Status().Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// addressesInUse returns how many IPv4 addresses of a network are in use by its status.
func addressesInUse(n *unstructured.Unstructured) (inUse int64) {
	pools, _, _ := unstructured.NestedSlice(n.Object, "status", "pools")
	for _, p := range pools {
		pool, _ := p.(map[string]any)
		inUse, _, _ = unstructured.NestedInt64(pool, "inUse")
	}
	return inUse
}

// awaitDevice waits until a network in a cluster has that device and VLAN.
func (w *world) awaitDevice(t *testing.T, cluster string, o *unstructured.Unstructured, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s %s in %s has %s", o.GetKind(), o.GetName(), cluster, want), func() error {
		if err := w.Clusters[cluster].Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		device, _, _ := unstructured.NestedString(o.Object, "spec", "Options", "host_device")
		vlan, _, _ := unstructured.NestedInt64(o.Object, "spec", "Options", "vlan")
		if got := fmt.Sprintf("%s %d", device, vlan); got != want {
			return fmt.Errorf("has %s", got)
		}
		return nil
	})
}

// serveAdmission serves the networks' real admission in a cluster until the test ends.
func (w *world) serveAdmission(t *testing.T, cluster string) {
	t.Helper()
	c := w.Clusters[cluster]
	for _, folder := range []string{"controller", "webhooks"} {
		err := bed.Install(t.Context(), c.Config, folder, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
		if err != nil {
			t.Fatal(err)
		}
	}
	stop, err := admissiontest.Serve(context.Background(), &apitest.Env{Config: c.Config, Client: c.Client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
			o := object("admissionregistration.k8s.io/v1", kind, "", "patchbay")
			if err := c.Client.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
		stop()
	})
}
