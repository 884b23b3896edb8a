// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// Nobody assigns yet, so a tenant who writes that he was assigned a device has not
// got it: what runs there would see other tenants' traffic.
func TestForgedAssignmentIsNotBelieved(t *testing.T) {
	t.Parallel()
	forged := network.Assignment{Place: network.Place{Kind: network.PlaceNIC, Device: "ens4"}, Token: "t"}.String()
	net := &v1.TenantNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "net", Annotations: map[string]string{v1.AssignedAnnotation: forged}},
		Spec:       v1.NetworkSpec{NetworkID: "net", Options: v1.NetworkOptions{Device: "ens4"}},
	}
	m := objects.ModelOf(net)
	if m.Err != nil {
		t.Fatal(m.Err)
	}
	if err := m.Network.Assigned(); err == nil {
		t.Errorf("the model takes the tenant's word: %+v", m.Network)
	}
}
