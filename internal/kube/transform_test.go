// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestReservedNodeAddresses(t *testing.T) {
	t.Parallel()
	nodes := []v1.NodeNetwork{
		{Status: v1.NodeNetworkStatus{NICs: []v1.NIC{{Name: "ens4", Addresses: []string{"10.0.0.7/24", "fd00::7/64"}}}}},
		{Status: v1.NodeNetworkStatus{NICs: []v1.NIC{{Name: "ens4", Addresses: []string{"10.0.1.7/24", "rubbish"}}, {Name: "ens5"}}}},
	}
	four, six := &network.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/24")}, &network.Subnet{CIDR: netip.MustParsePrefix("fd00::/64")}
	cases := map[string]struct {
		reason string
		net    network.Network
		want   []string
	}{
		"Four":   {reason: "A node's address is reserved only in the subnet that contains it.", net: network.Network{V4: four}, want: []string{"10.0.0.7"}},
		"Both":   {reason: "Each family has its own subnet.", net: network.Network{V4: four, V6: six}, want: []string{"10.0.0.7", "fd00::7"}},
		"Layer2": {reason: "A network without a subnet has no reserved addresses."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, a := range ReservedNodeAddresses(&tc.net, NodeNICAddresses(nodes)) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
