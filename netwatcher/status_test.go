// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	state := &State{
		NICs: []NIC{
			{Name: "veth7", Kind: "veth"},
			{Name: "bond0", Kind: "bond", MTU: 9000, Speed: 50000},
			{
				Name: "ens4", MAC: "02:00:00:00:00:04", MTU: 1500, Driver: "igb", Speed: 1000, TotalVFs: 7, NumVFs: 3,
				PCIAddress: "0000:03:00.0", Functions: []VirtualFunction{
					{Index: 0, Address: "0000:03:10.0", Driver: "igbvf"},
					{Index: 1, Address: "0000:03:10.2", Driver: "vfio-pci", Userspace: true},
					{Index: 2, Address: "0000:03:10.4"},
				},
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
			},
			{Name: "dummy0", Kind: "dummy", MTU: 1500},
			{Name: "ens4v0", VF: true},
			{Name: "ens4r0", Representor: true},
			{Name: "ens4v1", VF: true, MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")}},
		},
		Links: []ObservedLink{
			managed(vlanLink("storage.500", "ens4", 500, 1500)),
			managed(vlanLink("old.6", "ens4", 6, 1400)),
			{Spec: vlanLink("down.7", "ens4", 7, 1500), Managed: true},
			{Spec: vlanLink("half.8", "ens4", 8, 1500), Managed: true, Unfinished: true},
		},
	}
	plan := &Plan{RequiredNICs: []string{"dummy0", "ens4"}, Refused: map[network.Ref]error{ref("young"): errTaken}, DirectNICs: []DesiredLink{
		{Spec: Spec{Identity: network.Link{Device: "dummy0"}, Name: "dummy0", Device: "dummy0"}, Networks: []network.Ref{ref("plain")}},
	}, Links: []DesiredLink{
		{Spec: vlanLink("storage.500", "ens4", 500, 1500), Networks: []network.Ref{ref("b"), ref("a")}},
		{Spec: vlanLink("new.6", "ens4", 6, 1500)},
		{Spec: vlanLink("down.7", "ens4", 7, 1500)},
		{Spec: vlanLink("half.8", "ens4", 8, 1500)},
		{Spec: vlanLink("far.9", "ens9", 9, 0), Err: errNoNIC},
		{Spec: vlanLink("broken.10", "ens4", 10, 1500)},
	}}
	failures := linkFailures{network.Link{Device: "ens4", VLAN: 10}: errors.New("create link broken.10: no buffer space")}
	want := v1.NodeNetworkStatus{
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "False", Reason: "LinksNotUp", Message: "broken.10: create link broken.10: no buffer space (and 5 more)",
		}},
		NICs: []v1.NIC{
			{Name: "bond0", MTU: 9000, Speed: 50000},
			{Name: "dummy0", MTU: 1500},
			{
				Name: "ens4", MAC: "02:00:00:00:00:04", MTU: 1500, Driver: "igb", Speed: 1000,
				Addresses: []string{"192.0.2.1/24"}, SRIOV: &v1.SRIOVFunctions{
					TotalVFs: 7, NumVFs: 3, Address: "0000:03:00.0", Mode: "legacy", Functions: []v1.VirtualFunction{
						{Index: 0, Address: "0000:03:10.0", Driver: "igbvf"},
						{Index: 1, Address: "0000:03:10.2", Driver: "vfio-pci", Userspace: true},
						{Index: 2, Address: "0000:03:10.4"},
					},
				},
			},
			{Name: "ens4v1", MTU: 1500, Addresses: []string{"192.0.2.9/24"}},
		},
		Refused: []v1.RefusedNetwork{{Network: "ClusterNetwork/young", Error: "taken"}},
		Links: []v1.HostLink{
			{Name: "broken.10", Identity: "vlan/ens4/10", Parent: "ens4", State: "Error", Error: "create link broken.10: no buffer space"},
			{Name: "down.7", Identity: "vlan/ens4/7", Parent: "ens4", MTU: 1500, State: "Down"},
			{Name: "dummy0", Identity: "nic/dummy0", MTU: 1500, State: "Down", Networks: []string{"ClusterNetwork/plain"}},
			{Name: "far.9", Identity: "vlan/ens9/9", Parent: "ens9", State: "Error", Error: errNoNIC.Error()},
			{Name: "half.8", Identity: "vlan/ens4/8", Parent: "ens4", State: "Down"},
			{Name: "old.6", Identity: "vlan/ens4/6", Parent: "ens4", MTU: 1400, State: "Up"},
			{Name: "storage.500", Identity: "vlan/ens4/500", Parent: "ens4", MTU: 1500, State: "Up", Networks: []string{"ClusterNetwork/a", "ClusterNetwork/b"}},
		},
	}
	if diff := cmp.Diff(want, newStatus(plan, state, failures, nil, nil), opts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFunctionsStatus(t *testing.T) {
	t.Parallel()
	many := make([]VirtualFunction, v1.MaxFunctions+1)
	cases := map[string]struct {
		reason string
		nic    NIC
		want   v1.SRIOVFunctions
	}{
		"None": {
			reason: "The mode of a switch without functions is of no interest.",
			nic:    NIC{TotalVFs: 7, PCIAddress: "0000:03:00.0"},
			want:   v1.SRIOVFunctions{TotalVFs: 7, Address: "0000:03:00.0"},
		},
		"Switchdev": {
			reason: "A function with a representor is enough: the second one's is in another namespace.",
			nic: NIC{TotalVFs: 7, NumVFs: 2, Functions: []VirtualFunction{
				{Address: "0000:03:10.0", Representor: "ens4r0"}, {Index: 1, Address: "0000:03:10.2"},
			}},
			want: v1.SRIOVFunctions{TotalVFs: 7, NumVFs: 2, Mode: v1.SwitchModeSwitchdev, Functions: []v1.VirtualFunction{
				{Address: "0000:03:10.0", Representor: "ens4r0"}, {Index: 1, Address: "0000:03:10.2"},
			}},
		},
		"Many": {
			reason: "The object has room for 256 functions of a NIC. The numbers show that there are more.",
			nic:    NIC{TotalVFs: 300, NumVFs: 257, Functions: many},
			want:   v1.SRIOVFunctions{TotalVFs: 300, NumVFs: 257, Mode: v1.SwitchModeLegacy, Functions: make([]v1.VirtualFunction, 256)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(&tc.want, tc.nic.status().SRIOV); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// The name is the key of the list: two rows must not have the same name.
func TestStatusNamesAreUnique(t *testing.T) {
	t.Parallel()
	state := &State{Links: []ObservedLink{managed(vlanLink("x.5", "ens4", 5, 1500))}}
	plan := &Plan{Links: []DesiredLink{
		{Spec: vlanLink("x.5", "ens5", 5, 1500)}, // waits for the name
		{Spec: vlanLink("y.5", "ens4", 5, 1500)}, // has the name, with Pods on it
	}}
	got := newStatus(plan, state, nil, nil, nil).Links
	if len(got) != 2 || got[0].Name == got[1].Name {
		t.Errorf("got %+v, want two names", got)
	}
}
