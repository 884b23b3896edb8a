// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A node wakes all others by addresses, not by cards that have none.
func TestNICsThatOthersNeed(t *testing.T) {
	t.Parallel()
	node := func(uid types.UID, nics ...v1.NIC) *v1.NodeNetwork {
		return &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: v1.NodeNetworkStatus{NICs: nics}}
	}
	vtep := v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.1/24"}}
	cases := map[string]struct {
		reason string
		now    any
		want   bool
	}{
		"Card":    {"nobody sends to it", node("a", vtep, v1.NIC{Name: "ens4v0"}), true},
		"Address": {"a VTEP", node("a", vtep, v1.NIC{Name: "ens5", Addresses: []string{"192.0.2.2/24"}}), false},
		"Anew":    {"it was deleted meanwhile", node("b", vtep), false},
		"Other":   {"not an object to compare", "x", false},
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
