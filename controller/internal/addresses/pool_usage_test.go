// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
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
			if got := poolReason(poolWith("IPv4", tc.inUse, tc.capacity), tc.before); got != tc.want {
				t.Errorf("%s: %d of %d after %q is %s, want %s", tc.reason, tc.inUse, tc.capacity, tc.before, got, tc.want)
			}
		})
	}
}

// poolWith returns a pool whose used addresses Pods have.
func poolWith(family string, used, capacity int64) v1.PoolStatus {
	return v1.PoolStatus{Family: family, Capacity: capacity, InUse: used, Free: capacity - used}
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
			Held: map[string]v1.HeldAddresses{
				"n1": {UID: "u1", Seq: 1, V4: "10.9.0.2-10.9.0.4", QuarantinedV4: "10.9.0.4"},
			},
		}},
	}
	change(cn)
	return newNetworkSnapshot(network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, cn)
}

func TestCountPools(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	v6 := v1.PoolStatus{Family: "IPv6", Capacity: math.MaxInt64, InUse: 1, Free: math.MaxInt64 - 1, Reserved: 2}
	earlier := v1.PoolStatus{Family: "IPv4", Capacity: 9, Free: 9}
	cases := map[string]struct {
		reason string
		change func(*v1.ClusterNetwork)
		want   []v1.PoolStatus
	}{
		"Dual": {
			reason: "Each number is that of one family. Of five addresses, a Pod has one, a node one, one is in quarantine, and one has no owner.",
			change: func(*v1.ClusterNetwork) {},
			want:   []v1.PoolStatus{{Family: "IPv4", Capacity: 5, InUse: 1, Warm: 1, Cooldown: 2, Reserved: 1, Free: 1}, v6},
		},
		"New": {
			reason: "The numbers are known before the first use.", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM = nil; cn.UID = "other" },
			want: []v1.PoolStatus{
				{Family: "IPv4", Capacity: 5, Reserved: 1, Free: 5},
				{Family: "IPv6", Capacity: math.MaxInt64, Reserved: 2, Free: math.MaxInt64},
			},
		},
		"Restored": {
			reason: "The addresses of DanmEps are in use although the status is lost.", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM = nil },
			want: []v1.PoolStatus{{Family: "IPv4", Capacity: 5, InUse: 1, Reserved: 1, Free: 4}, v6},
		},
		"Statics": {
			reason: "An address outside of the allocation pool is none of its addresses.",
			change: func(cn *v1.ClusterNetwork) {
				cn.Spec.Options.Pool = &v1.IPPool{Start: "10.9.0.3", End: "10.9.0.6"}
			},
			want: []v1.PoolStatus{{Family: "IPv4", Capacity: 4, Warm: 1, Cooldown: 2, Reserved: 0, Free: 1}, v6},
		},
		"Invalid": {reason: "The network breaks a rule.", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkID = "" }},
		"Others":  {reason: "Another plugin allocates the addresses.", change: func(cn *v1.ClusterNetwork) { cn.Spec.NetworkType = "bridge"; cn.Spec.Options.Device = "" }},
		"Former": {
			reason: "Addresses of the earlier subnet are in use, and claims fail: no address is free.",
			change: func(cn *v1.ClusterNetwork) { cn.Spec.Options.CIDR = "10.10.0.0/29"; cn.Spec.Options.Routes = nil },
			want:   []v1.PoolStatus{earlier, v6},
		},
		"Grown": {
			reason: "The numbers are those of the wider subnet before its first claim. The bit without an owner is freed with the old bitmap.",
			change: func(cn *v1.ClusterNetwork) {
				cn.Spec.Options.CIDR, cn.Spec.Options.Net6 = "10.9.0.0/28", "fd00::/120"
				cn.Status.IPAM.V6 = &v1.AddressBitmap{CIDR: "fd00::/124", Pages: map[string]string{"0": page(2)}}
			},
			want: []v1.PoolStatus{
				{Family: "IPv4", Capacity: 13, InUse: 1, Warm: 1, Cooldown: 1, Reserved: 1, Free: 10},
				{Family: "IPv6", Capacity: 254, InUse: 1, Reserved: 2, Free: 253},
			},
		},
		"Damaged": {
			reason: "The next writer rebuilds a damaged bitmap.", change: func(cn *v1.ClusterNetwork) { cn.Status.IPAM.V4.Pages["0"] = "?" },
			want: []v1.PoolStatus{earlier, v6},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoints := []status.Endpoint{{NetworkUID: "u", V4: addr("10.9.0.2"), V6: addr("fd00::2")}, {NetworkUID: "former", V4: addr("10.9.0.6")}}
			got := countPools(dualStackNetwork(tc.change).Object, []v1.PoolStatus{earlier}, endpoints, nil)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
