// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
)

// The API server runs the same cases in test/apitest.
func TestTenantConfigRules(t *testing.T) {
	t.Parallel()
	for name, tc := range networktest.TenantConfigRules() {
		if tc.SchemaOnly {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &v1.TenantConfig{}
			if err := yaml.UnmarshalStrict([]byte(tc.Spec), o); err != nil {
				t.Fatal(err)
			}
			got, err := network.FromTenantConfig(o)
			if (err != nil) != (tc.Refused != nil) || (got == nil) != (err != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nFromTenantConfig: got %v, %v", tc.Reason, got, err)
			}
			for _, part := range tc.Refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nFromTenantConfig: got %q, want %q in it", tc.Reason, err, part)
				}
			}
		})
	}
}

func TestFromTenantConfig(t *testing.T) {
	t.Parallel()
	o := &v1.TenantConfig{
		HostDevices: []v1.HostDevice{
			{Name: "ens4", VNIType: "vlan", VNIRange: "7,10-20"}, {Name: "ens5", VNIType: "vxlan", VNIRange: "5000"}, {Name: "a/b"},
		},
		NetworkIDs: map[string]v1.TenantNetworkID{"MacVLAN": "m", "Flannel": "f"},
	}
	o.Name = "tc"
	got, err := network.FromTenantConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	want := &network.TenantConfig{
		Name: "tc",
		Devices: []network.TenantDevice{
			{Name: "ens4", VLANs: network.VNIRanges{{First: 7, Last: 7}, {First: 10, Last: 20}}},
			{Name: "ens5", VXLANs: network.VNIRanges{{First: 5000, Last: 5000}}},
			{Name: "a/b"},
		},
		NetworkIDs: map[string]string{"macvlan": "m", "Flannel": "f"},
		Budgets:    network.Budgets{Networks: 256, IDs: 64, IDsWithoutNetwork: 2},
	}
	if diff := cmp.Diff(want, got, models()); diff != "" {
		t.Errorf("FromTenantConfig: -want +got\n%s", diff)
	}
}

func TestFromTenantConfigBounds(t *testing.T) {
	t.Parallel()
	ids := map[string]v1.TenantNetworkID{}
	for i := range 65 {
		ids[fmt.Sprintf("type%d", i)] = "x"
	}
	for name, o := range map[string]*v1.TenantConfig{
		"hostDevices": {HostDevices: make([]v1.HostDevice, 257)},
		"networkIds":  {NetworkIDs: ids},
		"vniRange":    {HostDevices: []v1.HostDevice{{Name: "a", VNIType: "vlan", VNIRange: strings.Repeat("1,", 200) + "1"}}},
	} {
		if _, err := network.FromTenantConfig(o); !errors.Is(err, network.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s over its bound: got %v", name, err)
		}
	}
}

// Parsing the text of ranges gives the same ranges, and Contains agrees with them.
func TestVNIRangesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want network.VNIRanges
		for range rapid.IntRange(1, 10).Draw(t, "count") {
			first := rapid.IntRange(1, 16777214).Draw(t, "first")
			want = append(want, network.VNIRange{First: first, Last: rapid.IntRange(first, 16777214).Draw(t, "last")})
		}
		o := &v1.TenantConfig{HostDevices: []v1.HostDevice{{Name: "a", VNIType: "vxlan", VNIRange: want.String()}}}
		got, err := network.FromTenantConfig(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Devices[0].VXLANs); diff != "" {
			t.Fatalf("ranges: -want +got\n%s", diff)
		}
		for _, r := range want {
			if !want.Contains(r.First) || !want.Contains(r.Last) {
				t.Errorf("%v does not contain the ends of %v", want, r)
			}
		}
		if want.Contains(0) || want.Contains(16777215) {
			t.Errorf("%v contains an ID outside its ranges", want)
		}
	})
}

func TestUntaggedWarning(t *testing.T) {
	t.Parallel()
	tenancy, err := network.FromTenantConfig(&v1.TenantConfig{HostDevices: []v1.HostDevice{
		{Name: "ens4", VNIType: "vlan", VNIRange: "1000-1099"}, {Name: "ens5", VNIType: "vxlan", VNIRange: "5000-5999"}, {Name: "ens6"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cluster, simple := network.Ref{Kind: v1.KindClusterNetwork, Name: "flat"}, network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "flat"}
	cases := map[string]struct {
		reason string
		net    network.Network
		want   string
	}{
		"VLANs":     {reason: "frames with tags would enter tenants' VLANs", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens4"}, want: "frames with their tags where a node is not Isolated: set spec.AllowedTenants"},
		"VXLANs":    {reason: "Pods can send with the address of a VTEP", net: network.Network{Ref: cluster, Type: "ipvlan", Device: "ens5"}, want: "source address of a node"},
		"DanmNet":   {reason: "a DanmNet cannot have AllowedTenants", net: network.Network{Ref: simple, Type: "ipvlan", Device: "ens4"}, want: "use a ClusterNetwork"},
		"Delegate":  {reason: "another plugin's interfaces have no filter", net: network.Network{Ref: cluster, Type: "bridge", Device: "ens4"}, want: "frames with their tags: set"},
		"Allowed":   {reason: "the netadmin has limited the network to namespaces", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens4", AllowedTenants: []string{"infra"}}},
		"Tagged":    {reason: "the network's frames have a tag", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens4", VLAN: 7}},
		"VXLAN":     {reason: "the network's frames are in packets of the node", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens4", VXLAN: 7}},
		"NoNumbers": {reason: "TenantNetworks use the device without VNIs", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens6"}},
		"OtherNIC":  {reason: "no TenantConfig has the NIC", net: network.Network{Ref: cluster, Type: "macvlan", Device: "ens7"}},
		"SRIOV":     {reason: "the NIC checks the frames of its functions", net: network.Network{Ref: cluster, Type: "sriov", DevicePool: "a/b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tenancy.UntaggedWarning(&tc.net)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, got, tc.want)
			}
		})
	}
}
