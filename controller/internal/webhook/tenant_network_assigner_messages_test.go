// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// The device pool of a network of type sriov is assigned later. No message names another one.
func TestValidateUnassigned(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		options v1.NetworkOptions
		want    string
	}{
		"Valid": {reason: "A missing device pool is no error yet."},
		"NIC": {
			reason: "A NIC is never valid for sriov.", options: v1.NetworkOptions{Device: "ens4"},
			want: `TenantNetwork/red/net: spec.Options.host_device: Forbidden: must not be set for NetworkType sriov, which takes devices from device_pool: leave host_device "ens4" out`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := validateUnassigned(&v1.TenantNetwork{
				ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "net"},
				Spec:       v1.NetworkSpec{NetworkID: "net", NetworkType: v1.TypeSRIOV, Options: tc.options},
			})
			if tc.want == "" {
				if err != nil || n == nil || n.DevicePool != "" {
					t.Errorf("%s\ngot %+v, %v, want a network without a device pool", tc.reason, n, err)
				}
				return
			}
			if err == nil || err.Error() != tc.want {
				t.Errorf("%s\ngot  %v\nwant %s", tc.reason, err, tc.want)
			}
		})
	}
}

// The policy delegates.danm.io would reject the network after its slot is reserved.
func TestForbiddenOfDelegate(t *testing.T) {
	t.Parallel()
	obj := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "net"}}
	obj.Spec = v1.NetworkSpec{NetworkID: "net", NetworkType: "flannel", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}
	const want = `spec.Options.cidr: Forbidden: must not be set for NetworkType "flannel", because another CNI plugin sets addresses, routes and the MTU itself: leave cidr out`
	if err := validateObjectMeta(obj, nil); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("create: got  %v\nwant %s", err, want)
	}
	if err := validateObjectMeta(obj, obj); err != nil {
		t.Errorf("update of a stored network: %v", err)
	}
	obj.Spec.NetworkType = "IPVlan"
	if err := validateObjectMeta(obj, nil); err != nil {
		t.Errorf("create a network of Patchbay's own type: %v", err)
	}
}

func TestTakeOverMessage(t *testing.T) {
	t.Parallel()
	obj := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{
		Namespace: "red", Name: "net", Annotations: map[string]string{v1.TakeOverAnnotation: "true"},
	}}
	const want = `metadata.annotations[danm.io/take-over]: Invalid value: "true": must not be set on a network: taking over a live DANM network is not supported yet`
	if err := validateObjectMeta(obj, nil); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
