// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestAssign(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	tc := object(t, "TenantConfig", "", apitest.Name("tc"), `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "100-110"}]}`)
	if err := env.Client.Create(t.Context(), tc); err != nil {
		t.Fatal(err)
	}
	tn := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "blue"}, Spec: v1.NetworkSpec{NetworkID: "blue", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}}
	if err := env.Client.Create(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	if tn.Spec.Options.Device != "ens4" || tn.Spec.Options.VLAN != 100 {
		t.Errorf("got %+v", tn.Spec.Options)
	}
	t.Log(tn.Annotations)
	got := &v1.TenantConfig{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(tc), got); err != nil {
		t.Fatal(err)
	}
	t.Log(got.Status.Reservations)
	tn.Spec.Options.Device, tn.Spec.Options.VLAN = "", 0
	tn.Spec.Options.MTU = 1400
	if err := env.Client.Update(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	if tn.Spec.Options.Device != "ens4" || tn.Spec.Options.VLAN != 100 {
		t.Errorf("got %+v", tn.Spec.Options)
	}
	t.Log(env.Client.Delete(t.Context(), tc))
}
