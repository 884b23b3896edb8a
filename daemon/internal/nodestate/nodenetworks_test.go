// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// An update triggers the other nodes only when it changes addresses of NICs.
func TestSameNICs(t *testing.T) {
	t.Parallel()
	node := func(uid types.UID, nics ...v1.NIC) *v1.NodeNetwork {
		return &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: v1.NodeNetworkStatus{NICs: nics}}
	}
	vtep := v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.1/24"}}
	withLinks := node("a", vtep)
	withLinks.Status.Links = make([]v1.HostLink, 7)
	cases := map[string]struct {
		reason string
		now    any
		want   bool
	}{
		"NIC":           {"A NIC without an address is no VTEP of another node.", node("a", vtep, v1.NIC{Name: "ens4v0"}), true},
		"Links":         {"The status of links changes with each heartbeat and concerns no other node.", withLinks, true},
		"Address":       {"A new address may be a VTEP.", node("a", vtep, v1.NIC{Name: "ens5", Addresses: []string{"192.0.2.2/24"}}), false},
		"OtherAddress":  {"A VTEP may have moved.", node("a", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.9/24"}}), false},
		"Recreated":     {"The object was deleted and created again.", node("b", vtep), false},
		"NoNodeNetwork": {"There is nothing to compare.", "x", false},
		"Nil":           {"There is nothing to compare.", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameNICs(node("a", vtep), tc.now); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
