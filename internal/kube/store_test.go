// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// An invalid network still has addresses to release.
func TestStoreReadsInvalidNetworks(t *testing.T) {
	t.Parallel()
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Finalizers: []string{v1.InUseFinalizer}},
		Spec:       v1.NetworkSpec{NetworkID: "n", Options: v1.NetworkOptions{CIDR: "10.9.0.0/99"}},
	}
	cn.Status.IPAM = &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.9.0.0/24"}}
	o := ObjectOf(network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, cn)
	if !errors.Is(o.Invalid, network.ErrInvalid) || !strings.Contains(o.Invalid.Error(), "spec.Options.cidr") {
		t.Errorf("Invalid is %v, want the field", o.Invalid)
	}
	if o.UID != "u" || o.ResourceVersion != "7" || !o.Protected {
		t.Errorf("got %+v", o)
	}
	if diff := cmp.Diff(cn.Status.IPAM, o.IPAM); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
