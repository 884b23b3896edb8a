// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// While no admission is installed, a tenant may write that he was assigned a VLAN. He
// has not got it before a TenantConfig says so too: what runs there would see other
// tenants' traffic.
func TestForgedAssignmentIsNotBelieved(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	n, _ := watchNetworks(t, env)
	ns, name := env.Namespace(t), apitest.Name("tc")
	place := network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 1003}
	forged := &v1.TenantNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net", Annotations: map[string]string{
			v1.AssignedAnnotation: network.Assignment{Slot: place, Token: token}.String(),
		}},
		Spec: v1.NetworkSpec{NetworkID: "net", Options: v1.NetworkOptions{Device: "ens4", VLAN: 1003}},
	}
	if err := env.Client.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	ref := network.Ref{Kind: v1.KindTenantNetwork, Namespace: ns, Name: "net"}
	believed := func(ctx context.Context) error {
		net, err := n.Get(ctx, ref)
		if err != nil {
			return err
		}
		return net.CheckAssignment()
	}
	wait(t, "the network to be known", func(context.Context) error {
		if _, ok := n.models.get(ref); !ok {
			return errors.New("not yet")
		}
		return nil
	})
	if err := believed(t.Context()); !errors.Is(err, network.ErrInvalid) {
		t.Errorf("the daemon takes the tenant's word: %v", err)
	}
	tc := &v1.TenantConfig{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: "1000-1010"}},
	}
	if err := env.Client.Create(t.Context(), tc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), tc) })
	tc.Status.Reservations = map[string]string{"vlan/ens4/15": "1003 " + ns + "/net " + token}
	if err := env.Client.Status().Update(t.Context(), tc); err != nil {
		t.Fatal(err)
	}
	if err := believed(t.Context()); err != nil {
		t.Errorf("once it is reserved: %v", err)
	}
}
