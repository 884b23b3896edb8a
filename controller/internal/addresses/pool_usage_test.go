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
		"Empty":         {reason: "a new network", capacity: 100, want: enough},
		"Below":         {reason: "not yet at 90 %", inUse: 89, capacity: 100, want: enough},
		"Scarce":        {reason: "at 90 %", before: enough, inUse: 90, capacity: 100, want: scarce},
		"StaysScarce":   {reason: "a Pod less is no relief", before: scarce, inUse: 85, capacity: 100, want: scarce},
		"Relieved":      {reason: "below 85 %", before: scarce, inUse: 84, capacity: 100, want: enough},
		"NeverScarce":   {reason: "on the way up 85 % is nothing yet", before: enough, inUse: 86, capacity: 100, want: enough},
		"Exhausted":     {reason: "at 100 %", before: scarce, inUse: 100, capacity: 100, want: exhausted},
		"Statics":       {reason: "addresses by name may make it more than all", inUse: 101, capacity: 100, want: exhausted},
		"StaysFull":     {reason: "one free address of hundred is taken at once", before: exhausted, inUse: 99, capacity: 100, want: exhausted},
		"LessFull":      {reason: "below 98 %", before: exhausted, inUse: 97, capacity: 100, want: scarce},
		"SmallFree":     {reason: "of four addresses one is much", before: exhausted, inUse: 3, capacity: 4, want: enough},
		"FullToScarce":  {reason: "from exhausted the lower bound counts, too", before: exhausted, inUse: 86, capacity: 100, want: scarce},
		"One":           {reason: "a pool of one address", inUse: 1, capacity: 1, want: exhausted},
		"Huge":          {reason: "an IPv6 /64 does not overflow", inUse: 1 << 40, capacity: math.MaxInt64, want: enough},
		"AlmostHuge":    {reason: "nor when nearly full", inUse: math.MaxInt64 - 1, capacity: math.MaxInt64, want: scarce},
		"UnknownBefore": {reason: "a reason of another version counts as none of ours", before: "Other", inUse: 10, capacity: 100, want: enough},
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

// dual is a network with 10.9.0.0/29, which has 5 dynamic addresses besides the
// gateway, and an IPv6 subnet.
func dual(change func(*v1.ClusterNetwork)) networkSnapshot {
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
			reason: "a full IPv4 pool is not hidden by an endless IPv6 one", change: func(*v1.ClusterNetwork) {},
			families: []string{"IPv4", "IPv6"}, worst: poolUsage{"IPv4", 4, 5},
		},
		"Unknown": {reason: "nothing was recorded yet", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM = nil }},
		"Invalid": {reason: "a network that breaks a rule", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkID = "" }},
		"Others":  {reason: "another plugin's addresses", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkType = "bridge"; cn.Spec.Options.Device = "" }},
		"Former": {
			reason: "the bitmap is of the subnet before", change: func(cn *v1.ClusterNetwork) { cn.Spec.Options.CIDR = "10.10.0.0/29"; cn.Spec.Options.Routes = nil },
			families: []string{"IPv6"}, worst: poolUsage{"IPv6", 1, math.MaxInt64},
		},
		"Damaged": {
			reason: "rebuilding is the next writer's work", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM.V4.Pages["0"] = "?" },
			families: []string{"IPv6"}, worst: poolUsage{"IPv6", 1, math.MaxInt64},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses := poolUsages(dual(tc.change).Object, nil)
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
