// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestReasonsOfPools(t *testing.T) {
	t.Parallel()
	const enough, scarce, exhausted = v1.ReasonAddressesSufficient, v1.ReasonAddressesNearlyExhausted, v1.ReasonAddressesExhausted
	cases := map[string]struct {
		reason          string
		before          string
		inUse, capacity int64
		want            string
	}{
		"Empty":         {reason: "A new network is empty.", capacity: 100, want: enough},
		"Below":         {reason: "The pool is below 90 %.", inUse: 89, capacity: 100, want: enough},
		"Scarce":        {reason: "The pool is at 90 %.", before: enough, inUse: 90, capacity: 100, want: scarce},
		"StaysScarce":   {reason: "One Pod less must not change the condition.", before: scarce, inUse: 85, capacity: 100, want: scarce},
		"Relieved":      {reason: "The pool is below 85 %.", before: scarce, inUse: 84, capacity: 100, want: enough},
		"NeverScarce":   {reason: "While the pool fills, only 90 % counts.", before: enough, inUse: 86, capacity: 100, want: enough},
		"Exhausted":     {reason: "The pool is at 100 %.", before: scarce, inUse: 100, capacity: 100, want: exhausted},
		"Statics":       {reason: "Static addresses may exceed the capacity.", inUse: 101, capacity: 100, want: exhausted},
		"StaysFull":     {reason: "One free address of a hundred is soon taken.", before: exhausted, inUse: 99, capacity: 100, want: exhausted},
		"LessFull":      {reason: "The pool is below 98 %.", before: exhausted, inUse: 97, capacity: 100, want: scarce},
		"SmallFree":     {reason: "One of four addresses is a quarter of the pool.", before: exhausted, inUse: 3, capacity: 4, want: enough},
		"FullToScarce":  {reason: "After Exhausted the lower threshold applies too.", before: exhausted, inUse: 86, capacity: 100, want: scarce},
		"One":           {reason: "A pool may have one address.", inUse: 1, capacity: 1, want: exhausted},
		"Huge":          {reason: "An IPv6 /64 must not overflow.", inUse: 1 << 40, capacity: math.MaxInt64, want: enough},
		"AlmostHuge":    {reason: "A nearly full /64 must not overflow.", inUse: math.MaxInt64 - 1, capacity: math.MaxInt64, want: scarce},
		"UnknownBefore": {reason: "A reason of another version counts as none.", before: "Other", inUse: 10, capacity: 100, want: enough},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (poolUsage{"IPv4", tc.inUse, tc.capacity}).reason(tc.before); got != tc.want {
				t.Errorf("%s: %d of %d after %q is %s, want %s", tc.reason, tc.inUse, tc.capacity, tc.before, got, tc.want)
			}
		})
	}
}

// dualStackNetwork returns a network with 10.9.0.0/29, which has 5 dynamic addresses besides the gateway, and
// an IPv6 subnet.
func dualStackNetwork(change func(*v1.ClusterNetwork)) networkSnapshot {
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Generation: 3},
		Spec: v1.NetworkSpec{NetworkID: "n", NetworkType: "macvlan", Options: v1.NetworkOptions{
			Device: "ens4", CIDR: "10.9.0.0/29", Net6: "fd00::/64",
			Routes: map[string]v1.Gateway{"10.0.0.0/8": "10.9.0.1"},
		}},
		Status: v1.NetworkStatus{IPAM: &v1.IPAMStatus{
			V4: &v1.AddressBitmap{CIDR: "10.9.0.0/29", Pages: map[string]string{"0": page(2, 3, 4, 5)}},
			V6: &v1.AddressBitmap{CIDR: "fd00::/64", Pages: map[string]string{"0": page(2)}},
		}},
	}
	change(cn)
	return newNetworkSnapshot(network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, cn)
}

func TestUsesOfNetworks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		change   func(*v1.ClusterNetwork)
		families []string
		worst    poolUsage
	}{
		"Dual": {
			reason: "A large IPv6 pool must not hide a full IPv4 pool.", change: func(*v1.ClusterNetwork) {},
			families: []string{"IPv4", "IPv6"}, worst: poolUsage{"IPv4", 4, 5},
		},
		"Unknown": {reason: "The status has no bitmap yet.", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM = nil }},
		"Invalid": {reason: "The network breaks a rule.", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkID = "" }},
		"Others":  {reason: "Another plugin allocates the addresses.", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkType = "bridge"; cn.Spec.Options.Device = "" }},
		"Former": {
			reason: "The bitmap is of an earlier subnet.", change: func(cn *v1.ClusterNetwork) { cn.Spec.Options.CIDR = "10.10.0.0/29"; cn.Spec.Options.Routes = nil },
			families: []string{"IPv6"}, worst: poolUsage{"IPv6", 1, math.MaxInt64},
		},
		"Damaged": {
			reason: "The next writer rebuilds a damaged bitmap.", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM.V4.Pages["0"] = "?" },
			families: []string{"IPv6"}, worst: poolUsage{"IPv6", 1, math.MaxInt64},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses := poolUsages(dualStackNetwork(tc.change).Object, nil)
			var families []string
			for _, u := range uses {
				families = append(families, u.family)
			}
			worst, _ := mostUtilized(uses)
			if diff := cmp.Diff(tc.families, families); diff != "" {
				t.Errorf("%s: families (-want +got):\n%s", tc.reason, diff)
			}
			if worst != tc.worst {
				t.Errorf("%s: the fullest is %+v, want %+v", tc.reason, worst, tc.worst)
			}
		})
	}
}
