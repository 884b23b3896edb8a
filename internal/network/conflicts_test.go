// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// aged returns networks named n0, n1, … from specs, each older than the next.
func aged(tb testing.TB, specs ...string) []*network.Network {
	tb.Helper()
	nets := make([]*network.Network, len(specs))
	for i, spec := range specs {
		n, err := network.FromObject(object(tb, v1.KindClusterNetwork, spec))
		if err != nil {
			tb.Fatal(err)
		}
		n.Ref.Name, n.UID = fmt.Sprintf("n%d", i), fmt.Sprintf("uid%d", i)
		n.Created = time.Unix(int64(i), 0)
		nets[i] = n
	}
	return nets
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	type conflicts map[string]error
	cases := map[string]struct {
		reason string
		specs  []string
		want   conflicts
		parts  []string
	}{
		"SameVLAN": {
			reason: "Both networks share one link.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 5}}`},
		},
		"SameEverything": {
			reason: "Two DanmNets of two namespaces may share NetworkID, VLAN and cidr with disjoint pools.",
			specs: []string{
				`{NetworkID: a, Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.99}}}`,
				`{NetworkID: a, Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.100}}}`,
			},
		},
		"TrunkBeside": {
			reason: "The NIC passes tags of all Pods or of none.",
			specs: []string{
				`{NetworkID: a, Options: {host_device: ens4}}`,
				`{NetworkID: b, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`,
				`{NetworkID: c, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: d, AllowedTenants: [vnf], Options: {host_device: ens5, trunk: true}}`,
			},
			want: conflicts{"n1": network.ErrParentShared}, parts: []string{"spec.Options.trunk", "ClusterNetwork/n0", "nic/ens4"},
		},
		"SameIDOtherVLAN": {
			reason: "a.5 and a.6 are different link names.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: a, Options: {host_device: ens4, vlan: 6}}`},
		},
		"NameTakenOnOtherDevice": {
			reason: "a.5 cannot be on two NICs.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: a, Options: {host_device: ens5, vlan: 5}}`},
			want:   conflicts{"n1": network.ErrLinkTaken}, parts: []string{"spec.NetworkID", `"a.5"`, "vlan/ens5/5", "ClusterNetwork/n0", "another NetworkID"},
		},
		"VXLANNameTaken": {
			reason: "vx_a cannot have two VNIs.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vxlan: 5}}`, `{NetworkID: a, Options: {host_device: ens4, vxlan: 6}}`},
			want:   conflicts{"n1": network.ErrLinkTaken}, parts: []string{`spec.NetworkID: Invalid value: "a"`, `"vx_a"`, "vxlan/6", "vxlan/5"},
		},
		"VXLANOtherDevice": {
			reason: "A VNI exists once on a node.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vxlan: 5}}`, `{NetworkID: b, Options: {host_device: ens5, vxlan: 5}}`},
			want:   conflicts{"n1": network.ErrLinkTaken}, parts: []string{`spec.Options.host_device: Invalid value: "ens5"`, "vxlan/5", "ens4", "ens5"},
		},
		"NameOfANIC": {
			reason: "The link's name is that of another network's NIC.",
			specs:  []string{`{NetworkID: a, Options: {host_device: b.5}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 5}}`},
			want:   conflicts{"n1": network.ErrLinkTaken}, parts: []string{"spec.NetworkID", `"b.5"`, "nic/b.5"},
		},
		"NameForASharedLink": {
			reason: "n2 is on n0's link, and would give it the NIC's name after n0 is deleted.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: c, Options: {host_device: b.5}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 5}}`},
			want:   conflicts{"n2": network.ErrLinkTaken}, parts: []string{"spec.NetworkID", `"b.5"`, "nic/b.5", "ClusterNetwork/n1"},
		},
		"NICHasTheNameForASharedLink": {
			reason: "n2 must not use a NIC whose name n1 may give to its link.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: c, Options: {host_device: b.5}}`},
			want:   conflicts{"n2": network.ErrLinkTaken}, parts: []string{"spec.Options.host_device", `"b.5"`, "vlan/ens4/5", "ClusterNetwork/n1"},
		},
		"NICIsALink": {
			reason: "A link of Patchbay must not be used as a NIC, because its backend would not be checked.",
			specs:  []string{`{NetworkID: b, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: a, Options: {host_device: b.5}}`},
			want:   conflicts{"n1": network.ErrLinkTaken}, parts: []string{`spec.Options.host_device: Invalid value: "b.5"`, "vlan/ens4/5"},
		},
		"NamedAsItsParent": {
			reason: "A link cannot have its parent's name.",
			specs:  []string{`{NetworkID: ens4, Options: {host_device: ens4.5, vlan: 5}}`},
			want:   conflicts{"n0": network.ErrLinkTaken}, parts: []string{`spec.NetworkID: Invalid value: "ens4"`, `"ens4.5"`, "another NetworkID"},
		},
		"OtherBackend": {
			reason: "The kernel rejects MACVLAN and IPVLAN on one link.",
			specs:  []string{`{NetworkType: macvlan, Options: {host_device: ens4}}`, `{Options: {host_device: ens4}}`},
			want:   conflicts{"n1": network.ErrParentShared}, parts: []string{`spec.NetworkType: Invalid value: "ipvlan"`, "macvlan", "nic/ens4"},
		},
		"OtherBackendOtherVLAN": {
			reason: "Two VLANs of one NIC are two parents.",
			specs:  []string{`{NetworkID: a, NetworkType: macvlan, Options: {host_device: ens4, vlan: 5}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 6}}`},
		},
		"Delegate": {
			reason: "The use of the parent by a plugin is unknown.",
			specs:  []string{`{NetworkType: bridge, Options: {host_device: ens4}}`, `{Options: {host_device: ens4}}`},
		},
		"SRIOV": {
			reason: "A virtual function needs no link.",
			specs:  []string{`{NetworkID: a, NetworkType: sriov, Options: {device_pool: a/b, vlan: 5}}`, `{NetworkID: a, Options: {host_device: ens4, vlan: 5}}`},
		},
		"NoDevice": {
			reason: "The segments of networks without a device are unknown.",
			specs:  []string{`{Options: {cidr: 10.0.0.0/24}}`, `{NetworkType: macvlan, Options: {cidr: 10.0.0.0/24}}`},
		},
		"Overlap": {
			reason: "Two interfaces could get one address.",
			specs:  []string{`{Options: {host_device: ens4, cidr: 10.0.0.0/16}}`, `{Options: {host_device: ens4, cidr: 10.0.9.0/24}}`},
			want:   conflicts{"n1": network.ErrPoolOverlap}, parts: []string{"spec.Options.allocation_pool: Invalid value", "must not overlap", "10.0.9.1-10.0.9.254", "10.0.0.1-10.0.255.254", "disjoint"},
		},
		"OverlapByOne": {
			reason: "One common address is a conflict.",
			specs: []string{
				`{Options: {host_device: ens4, cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.99}}}`,
				`{Options: {host_device: ens4, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.99}}}`,
			},
			want: conflicts{"n1": network.ErrPoolOverlap},
		},
		"Overlap6": {
			reason: "IPv6 pools are checked too.",
			specs:  []string{`{Options: {host_device: ens4, net6: "fd00::/64"}}`, `{Options: {host_device: ens4, net6: "fd00::/64"}}`},
			want:   conflicts{"n1": network.ErrPoolOverlap}, parts: []string{"spec.Options.allocation_pool_v6"},
		},
		"OverlapElsewhere": {
			reason: "Different VLANs are different segments.",
			specs:  []string{`{NetworkID: a, Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24}}`, `{NetworkID: b, Options: {host_device: ens4, vlan: 6, cidr: 10.0.0.0/24}}`},
		},
		"OverlapInPool": {
			reason: "One device pool and VLAN is one segment.",
			specs:  []string{`{NetworkType: sriov, Options: {device_pool: a/b, cidr: 10.0.0.0/24}}`, `{NetworkType: sriov, Options: {device_pool: a/b, cidr: 10.0.0.0/24}}`},
			want:   conflicts{"n1": network.ErrPoolOverlap},
		},
		"RefusedHasNoSay": {
			reason: "n1 has a conflict, so n2 does not conflict with n1.",
			specs: []string{
				`{NetworkType: macvlan, Options: {host_device: ens4}}`,
				`{Options: {host_device: ens4, cidr: 10.0.0.0/24}}`,
				`{NetworkType: macvlan, Options: {host_device: ens4, cidr: 10.0.0.0/24}}`,
			},
			want: conflicts{"n1": network.ErrParentShared},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nets := aged(t, tc.specs...)
			got := network.Conflicts(nets)
			checkConflicts(t, tc.reason, got, tc.want, tc.parts)
			for _, n := range nets {
				if err := network.CheckConflict(n, nets); !errors.Is(err, tc.want[n.Ref.Name]) {
					t.Errorf("%s\nCheckConflict(%s): got %v, want %v", tc.reason, n.Ref, err, tc.want[n.Ref.Name])
				}
			}
		})
	}
}

func checkConflicts(t *testing.T, reason string, got map[network.Ref]error, want map[string]error, parts []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s\nConflicts: got %v, want %v", reason, got, want)
	}
	for ref, err := range got {
		if !errors.Is(err, want[ref.Name]) {
			t.Errorf("%s\nConflicts: got %v for %s, want %v", reason, err, ref, want[ref.Name])
		}
		if errors.Is(err, network.ErrInvalid) {
			t.Errorf("%s\nConflicts: got %v, which must not be ErrInvalid", reason, err)
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s\nConflicts: got %q, want %q in it", reason, err, part)
			}
		}
	}
}

// No option sets a mode yet, but backends and these rules support modes.
func TestConflictsOfModes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, backend, older, younger string
		want                            error
	}{
		"SameMode":     {reason: "Both networks have one mode.", backend: "ipvlan", older: "l3s", younger: "l3s"},
		"OtherMode":    {reason: "A slave in mode l3s changes the other slaves of its parent.", backend: "ipvlan", older: "", younger: "l3s", want: network.ErrParentShared},
		"MACVLANModes": {reason: "MACVLAN has a mode per slave.", backend: "macvlan", older: "bridge", younger: "vepa"},
		"Passthru":     {reason: "A passthru network needs a parent of its own.", backend: "macvlan", older: "bridge", younger: "passthru", want: network.ErrParentShared},
		"AfterPassthru": {
			reason: "A passthru network needs a parent of its own.", backend: "macvlan", older: "passthru", younger: "", want: network.ErrParentShared,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := `{NetworkType: ` + tc.backend + `, Options: {host_device: ens4}}`
			nets := aged(t, spec, spec)
			nets[0].Mode, nets[1].Mode = tc.older, tc.younger
			if got := network.Conflicts(nets)[nets[1].Ref]; !errors.Is(got, tc.want) {
				t.Errorf("%s\nConflicts: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, link, name string
	}{
		"NIC":     {reason: "The link is the NIC itself.", spec: `{NetworkID: a, Options: {host_device: ens4}}`, link: "nic/ens4", name: "ens4"},
		"VLAN":    {reason: "There is one link per NIC and VLAN ID.", spec: `{NetworkID: a, Options: {host_device: ens4, vlan: 4094}}`, link: "vlan/ens4/4094", name: "a.4094"},
		"VXLAN":   {reason: "There is one link per VNI.", spec: `{NetworkID: a, Options: {host_device: ens4, vxlan: 16777214}}`, link: "vxlan/16777214", name: "vx_a"},
		"Longest": {reason: "The longest name fits into IFNAMSIZ.", spec: `{NetworkID: tencharact, Options: {host_device: ens4, vlan: 4094}}`, link: "vlan/ens4/4094", name: "tencharact.4094"},
		"SRIOV":   {reason: "A virtual function needs no link.", spec: `{NetworkID: a, NetworkType: sriov, Options: {device_pool: a/b, vlan: 5}}`},
		"None":    {reason: "A network without a device has no link.", spec: `{NetworkID: a, Options: {vlan: 5}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := aged(t, tc.spec)[0]
			var got [2]string
			if link, ok := n.Link(); ok {
				got = [2]string{link.String(), n.LinkName()}
			}
			if diff := cmp.Diff([2]string{tc.link, tc.name}, got); diff != "" {
				t.Errorf("%s\nlink and name: -want +got\n%s", tc.reason, diff)
			}
			if len(got[1]) > 15 {
				t.Errorf("link name %q has %d bytes", got[1], len(got[1]))
			}
		})
	}
}

func TestOlder(t *testing.T) {
	t.Parallel()
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	cases := map[string]struct {
		reason string
		a, b   network.Network
		want   bool
	}{
		"Created":  {reason: "The network that was created first is older.", a: network.Network{Created: first, UID: "b"}, b: network.Network{Created: second, UID: "a"}, want: true},
		"Later":    {reason: "The network that was created later is not older.", a: network.Network{Created: second}, b: network.Network{Created: first}},
		"SameTime": {reason: "Creation times are in seconds, so the UID decides.", a: network.Network{Created: first, UID: "a"}, b: network.Network{Created: first, UID: "b"}, want: true},
		"Same":     {reason: "A network is not older than itself.", a: network.Network{Created: first, UID: "a"}, b: network.Network{Created: first, UID: "a"}},
		"New":      {reason: "A network in creation is not older.", a: network.Network{}, b: network.Network{Created: first}},
		"OverNew":  {reason: "An existing network is older than one in creation.", a: network.Network{Created: first}, b: network.Network{}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.a.Older(&tc.b); got != tc.want {
				t.Errorf("%s\nOlder: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
