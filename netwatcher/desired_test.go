// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestDesired(t *testing.T) {
	t.Parallel()
	peers := VTEPs{"ens4": ipList("192.0.2.2", "192.0.2.3", "2001:db8::9"), "ens5": ipList("2001:db8:5::2")}
	cases := map[string]struct {
		reason string
		nets   []*network.Network
		state  *State
		want   Plan
	}{
		"Nothing": {reason: "Without a network there is no link.", want: Plan{}},
		"VLAN": {
			reason: "The link has the NIC's MTU, also if the network requests less.",
			nets:   []*network.Network{newNet(1, "storage", vlan(500), mtu(1400))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("storage.500", "ens4", 500, 1500), Networks: []network.Ref{ref("storage")}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"VXLANOverIPv4": {
			reason: "VXLAN over IPv4 has 50 bytes of overhead, and peers of the same family.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vxlanLink("vx_backend", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2", "192.0.2.3"), Networks: []network.Ref{ref("backend")}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"VXLANOverIPv6": {
			reason: "VXLAN over IPv6 has 70 bytes of overhead.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700), device("ens5"))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vxlanLink("vx_backend", "ens5", 700, 8930, "2001:db8:5::1", "2001:db8:5::2"), Networks: []network.Ref{ref("backend")}}},
				RequiredNICs: []string{"ens5"},
			},
		},
		"NIC": {
			reason: "A network without a VLAN requires its NIC up, and no link.",
			nets:   []*network.Network{newNet(1, "plain", device("ens6"))},
			want: Plan{
				RequiredNICs: []string{"ens6"},
				DirectNICs:   []DesiredLink{{Spec: Spec{Identity: network.Link{Device: "ens6"}, Name: "ens6", Device: "ens6", MTU: 1500}, Networks: []network.Ref{ref("plain")}}},
			},
		},
		"NoDevice": {
			reason: "SR-IOV networks and those with other plugins' devices have no link.",
			nets:   []*network.Network{newNet(1, "pool", kind("sriov"), device(""), vlan(5)), newNet(2, "flannel", kind("flannel"), device(""))},
			want:   Plan{},
		},
		"Unassigned": {
			reason: "A tenant's VLAN that was not assigned has no link and conflicts with no network.",
			nets:   []*network.Network{newNet(1, "spy", tenants, kind("macvlan"), vlan(500)), newNet(2, "storage", vlan(500))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("storage.500", "ens4", 500, 1500), Networks: []network.Ref{ref("storage")}}},
				RequiredNICs: []string{"ens4"},
				Refused: map[network.Ref]error{
					{Kind: "TenantNetwork", Namespace: "ns", Name: "spy"}: network.ErrInvalid,
				},
			},
		},
		"Assigned": {
			reason: "A tenant's assigned VLAN has a link.",
			nets:   []*network.Network{newNet(1, "red", tenants, kind("macvlan"), vlan(1003), assigned("vlan/ens4/1003"))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("vl1003_ens4", "ens4", 1003, 1500), Networks: []network.Ref{{Kind: "TenantNetwork", Namespace: "ns", Name: "red"}}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"VRF": {
			reason: "A NIC in a VRF still delivers frames to VLANs and slaves.",
			nets:   []*network.Network{newNet(1, "storage", vlan(500))},
			state:  &State{NICs: []NIC{{Name: "ens4", MTU: 1500, Up: true, Master: "blue", MasterKind: "vrf"}}},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("storage.500", "ens4", 500, 1500), Networks: []network.Ref{ref("storage")}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"Switch": {
			reason: "Open vSwitch gets all frames of its ports, like every other master.",
			nets:   []*network.Network{newNet(1, "plain")},
			state:  &State{NICs: []NIC{{Name: "ens4", MTU: 1500, Up: true, Master: "ovs-system", MasterKind: "openvswitch"}}},
			want: Plan{
				DirectNICs: []DesiredLink{{Spec: Spec{Identity: network.Link{Device: "ens4"}, Name: "ens4", Device: "ens4"}, Networks: []network.Ref{ref("plain")}, Err: errBridgePort}},
			},
		},
		"Bond": {
			reason: "A network can use a bond, but not its ports.",
			nets:   []*network.Network{newNet(1, "both", vlan(5), device("bond0")), newNet(2, "port", vlan(5), device("ens4"))},
			state: &State{NICs: []NIC{
				{Name: "bond0", Kind: "bond", MTU: 9000, Up: true}, {Name: "ens4", MTU: 9000, Up: true, Master: "bond0", MasterKind: "bond"},
			}},
			want: Plan{
				Links: []DesiredLink{
					{Spec: vlanLink("both.5", "bond0", 5, 9000), Networks: []network.Ref{ref("both")}},
					{Spec: Spec{Identity: network.Link{Device: "ens4", VLAN: 5}, Name: "port.5", Device: "ens4"}, Networks: []network.Ref{ref("port")}, Err: errBridgePort},
				},
				RequiredNICs: []string{"bond0"},
			},
		},
		"Delegate": {
			reason: "A delegate's master may be a managed link.",
			nets:   []*network.Network{newNet(1, "bridged", kind("bridge"), vlan(5))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("bridged.5", "ens4", 5, 1500), Networks: []network.Ref{ref("bridged")}, AllowsTags: true}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"OldestNames": {
			reason: "The oldest network names the link, in any order of the list.",
			nets:   []*network.Network{newNet(3, "c", vlan(500)), newNet(1, "a", vlan(500)), newNet(2, "b", vlan(500))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("a.500", "ens4", 500, 1500), Networks: []network.Ref{ref("a"), ref("b"), ref("c")}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"SameAge": {
			reason: "For networks of the same age the UID decides.",
			nets:   []*network.Network{newNet(1, "b", vlan(500)), newNet(1, "a", vlan(500))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("a.500", "ens4", 500, 1500), Networks: []network.Ref{ref("a"), ref("b")}}},
				RequiredNICs: []string{"ens4"},
			},
		},
		"NameForOtherIdentity": {
			reason: "The younger network is refused.",
			nets:   []*network.Network{newNet(1, "x", named("old"), vlan(5)), newNet(2, "x", named("young"), vlan(5), device("ens5"))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("x.5", "ens4", 5, 1500), Networks: []network.Ref{ref("old")}}},
				RequiredNICs: []string{"ens4"},
				Refused:      map[network.Ref]error{ref("young"): errTaken},
			},
		},
		"VNIOnOtherDevice": {
			reason: "The kernel allows one link per VNI.",
			nets:   []*network.Network{newNet(2, "young", vxlan(700), device("ens5")), newNet(1, "old", vxlan(700))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vxlanLink("vx_old", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2", "192.0.2.3"), Networks: []network.Ref{ref("old")}}},
				RequiredNICs: []string{"ens4"},
				Refused:      map[network.Ref]error{ref("young"): errTaken},
			},
		},
		"OtherSlavesOnTheLink": {
			reason: "The kernel delivers a link's frames to one driver.",
			nets:   []*network.Network{newNet(1, "old", vlan(5)), newNet(2, "young", vlan(5), kind("macvlan")), newNet(3, "delegate", vlan(5), kind("bridge"))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("old.5", "ens4", 5, 1500), Networks: []network.Ref{ref("old"), ref("delegate")}}},
				RequiredNICs: []string{"ens4"},
				Refused:      map[network.Ref]error{ref("young"): errTaken},
			},
		},
		"PoolsOverlap": {
			reason: "An address must not be on two interfaces of a segment.",
			nets:   []*network.Network{newNet(1, "old", vlan(5), subnet("10.0.0.0/24")), newNet(2, "young", vlan(5), subnet("10.0.0.0/25"))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vlanLink("old.5", "ens4", 5, 1500), Networks: []network.Ref{ref("old")}}},
				RequiredNICs: []string{"ens4"},
				Refused:      map[network.Ref]error{ref("young"): network.ErrPoolOverlap},
			},
		},
		"NoNIC": {
			reason: "The link has an error on this node.",
			nets:   []*network.Network{newNet(1, "storage", vlan(500), device("ens9")), newNet(2, "plain", device("ens9"))},
			want: Plan{
				Links:      []DesiredLink{{Spec: Spec{Identity: network.Link{Device: "ens9", VLAN: 500}, Name: "storage.500", Device: "ens9"}, Networks: []network.Ref{ref("storage")}, Err: errNoNIC}},
				DirectNICs: []DesiredLink{{Spec: Spec{Identity: network.Link{Device: "ens9"}, Name: "ens9", Device: "ens9"}, Networks: []network.Ref{ref("plain")}, Err: errNoNIC}},
			},
		},
		"BridgePort": {
			reason: "A bridge gets all frames of its ports.",
			nets:   []*network.Network{newNet(1, "storage", vlan(500), device("ens7"))},
			want: Plan{
				Links: []DesiredLink{{Spec: Spec{Identity: network.Link{Device: "ens7", VLAN: 500}, Name: "storage.500", Device: "ens7"}, Networks: []network.Ref{ref("storage")}, Err: errBridgePort}},
			},
		},
		"NoVTEP": {
			reason: "VXLAN requires an address of the NIC.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700), device("ens6"))},
			want: Plan{
				Links: []DesiredLink{{Spec: Spec{Identity: network.Link{VXLAN: 700}, Name: "vx_backend", Device: "ens6", MTU: 1500}, Networks: []network.Ref{ref("backend")}, Err: errNoAddress}},
			},
		},
		"MTUTooLarge": {
			reason: "Networks with a larger MTU than the link's are refused.",
			nets:   []*network.Network{newNet(1, "big", vxlan(700), mtu(1500)), newNet(2, "fits", vxlan(700), mtu(1450)), newNet(3, "jumbo", vxlan(700), mtu(9000))},
			want: Plan{
				Links:        []DesiredLink{{Spec: vxlanLink("vx_fits", "ens4", 700, 1450, "192.0.2.1", "192.0.2.2", "192.0.2.3"), Networks: []network.Ref{ref("fits")}}},
				RequiredNICs: []string{"ens4"},
				Refused:      map[network.Ref]error{ref("big"): errMTUTooLarge, ref("jumbo"): errMTUTooLarge},
			},
		},
		"ForeignIdentity": {
			reason: "A VLAN that Patchbay did not create is not used.",
			nets:   []*network.Network{newNet(1, "storage", vlan(500))},
			state:  host(unmanaged(vlanLink("ens4.500", "ens4", 500, 1500))),
			want:   Plan{Refused: map[network.Ref]error{ref("storage"): errTaken}},
		},
		"ForeignName": {
			reason: "A NIC of the node has the name.",
			nets:   []*network.Network{newNet(1, "backend", vxlan(700))},
			state:  &State{NICs: append(host().NICs, NIC{Name: "vx_backend"})},
			want:   Plan{Refused: map[network.Ref]error{ref("backend"): errTaken}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := tc.state
			if state == nil {
				state = host()
			}
			before := slices.Clone(tc.nets)
			got := Desired(tc.nets, state, peers)
			if diff := cmp.Diff(&tc.want, got, opts); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			if !slices.Equal(before, tc.nets) {
				t.Error("the caller's list was reordered")
			}
		})
	}
}

// Errors name the remedy.
func TestMessages(t *testing.T) {
	t.Parallel()
	nets := []*network.Network{newNet(1, "old", vxlan(700)), newNet(2, "young", vxlan(700), device("ens5")), newNet(3, "gone", device("ens9"))}
	plan := Desired(nets, host(), nil)
	got := map[string]error{"young": plan.Refused[ref("young")], "gone": plan.DirectNICs[0].Err}
	for name, want := range map[string]string{
		"young": "ClusterNetwork/young: spec.Options.host_device: Invalid value: \"ens5\": must be ens4, because ClusterNetwork/old has vxlan/700 there: use host_device ens4 or another vxlan",
		"gone":  "ens9: NIC not found on this node (it has ens4, ens5, ens6, ens7)",
	} {
		if got := got[name]; got == nil || got.Error() != want {
			t.Errorf("%s: got %v\nwant %s", name, got, want)
		}
	}
}
