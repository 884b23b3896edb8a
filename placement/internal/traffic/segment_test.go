// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/traffic"
)

// onVLAN returns a network with a VLAN, a subnet and a pool.
func onVLAN(vlan int, cidr, start, end string) traffic.Network {
	return traffic.Network{VLAN: vlan, Subnets: []traffic.Subnet{{
		CIDR: netip.MustParsePrefix(cidr), Start: netip.MustParseAddr(start), End: netip.MustParseAddr(end),
	}}}
}

func TestSegment(t *testing.T) {
	t.Parallel()
	east := onVLAN(7, "10.0.0.0/16", "10.0.1.0", "10.0.1.255")
	west := onVLAN(7, "10.0.0.0/16", "10.0.2.0", "10.0.2.255")
	for name, tc := range map[string]struct {
		reason  string
		west    traffic.Network
		refused string // "": it is one segment
	}{
		"One":      {reason: "The same VLAN and subnet, with pools apart, are one segment.", west: west},
		"VLAN":     {reason: "Another VLAN is another segment.", west: onVLAN(8, "10.0.0.0/16", "10.0.2.0", "10.0.2.255"), refused: "vlan: must be the same in east and west: got 7 and 8"},
		"Subnet":   {reason: "Another subnet needs a router.", west: onVLAN(7, "10.0.0.0/17", "10.0.2.0", "10.0.2.255"), refused: "got 10.0.0.0/16 and 10.0.0.0/17"},
		"Overlap":  {reason: "Two clusters would assign one address.", west: onVLAN(7, "10.0.0.0/16", "10.0.1.255", "10.0.2.255"), refused: "allocation_pool_v6: must not overlap in east and west"},
		"Untagged": {reason: "Without a VLAN or VXLAN nothing identifies the segment.", west: onVLAN(0, "10.0.0.0/16", "10.0.2.0", "10.0.2.255"), refused: "west: must have vlan or vxlan"},
		"VXLAN": {reason: "A VXLAN is no VLAN.", west: traffic.Network{VXLAN: 7, Subnets: west.Subnets},
			refused: "vlan: must be the same in east and west: got 7 and 0"},
		"Family": {reason: "One cluster lacks the subnet.", west: traffic.Network{VLAN: 7}, refused: "must be the same in east and west"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := traffic.NewSegment(map[string]traffic.Network{"east": east, "west": tc.west})
			if tc.refused == "" {
				if err != nil || !s.Reaches("west") || s.Reaches("south") {
					t.Errorf("%s: %v, %+v", tc.reason, err, s)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
}

// The pools are searched by their first address: those without addresses must not hide others.
func TestPoolsOfASegment(t *testing.T) {
	t.Parallel()
	networks := map[string]traffic.Network{
		"east": onVLAN(7, "10.0.0.0/16", "10.0.1.0", "10.0.1.255"), "west": onVLAN(7, "10.0.0.0/16", "10.0.3.0", "10.0.3.255"),
		"none": onVLAN(7, "10.0.0.0/16", "10.0.2.200", "10.0.2.199"),
	}
	s, err := traffic.NewSegment(networks)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"10.0.0.255": "none", "10.0.1.0": "", "10.0.1.255": "", "10.0.2.0": "none", "10.0.2.255": "none", "10.0.3.0": "", "10.0.3.255": "", "10.0.4.0": "none",
	} {
		out := traffic.Merge(traffic.Input{Segment: s, Reports: map[string][]v1alpha1.TrafficEndpoints{"none": {{Work: "a", Addresses: []string{address}}}, "west": nil}})
		got := ""
		for _, e := range out.Endpoints["west"] {
			got = string(e.Cluster)
		}
		if got != want {
			t.Errorf("%s, reported by a cluster without a pool: of %q, want %q", address, got, want)
		}
	}
}
