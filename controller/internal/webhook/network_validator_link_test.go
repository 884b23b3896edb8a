// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A network that Pods cannot join is stored, because DANM's manifests have such networks.
func TestLinkWarnings(t *testing.T) {
	t.Parallel()
	ref := network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}
	cases := map[string]struct {
		reason string
		net    network.Network
		want   string
	}{
		"NIC":   {reason: "The network has a NIC.", net: network.Network{Ref: ref, Type: v1.TypeIPVLAN, Device: "ens4", VLAN: 5}},
		"SRIOV": {reason: "The physical function adds the VLAN tag.", net: network.Network{Ref: ref, Type: v1.TypeSRIOV, DevicePool: "a.b/c", VLAN: 500}},
		"SRIOVNoVLAN": {
			reason: "Only the switch keeps the Pods from other VLANs.", net: network.Network{Ref: ref, Type: v1.TypeSRIOV, DevicePool: "a.b/c"},
			want: "spec.Options.vlan: without it",
		},
		"SRIOVTenants": {
			reason: "The netadmin has chosen the namespaces that may send tags.", net: network.Network{Ref: ref, Type: v1.TypeSRIOV, DevicePool: "a.b/c", AllowedTenants: []string{"vnf"}},
		},
		"DevicePool": {reason: "Slaves are on a NIC.", net: network.Network{Ref: ref, Type: v1.TypeIPVLAN, DevicePool: "a.b/c"}, want: "spec.Options.device_pool: has no effect with NetworkType ipvlan"},
		"NoNIC":      {reason: "IPVLAN needs a parent.", net: network.Network{Ref: ref, Type: v1.TypeIPVLAN}, want: "spec.Options.host_device: must name a NIC"},
		"Plugin":     {reason: "Another plugin has its own configuration.", net: network.Network{Ref: ref, Type: "bridge"}},
		"PluginVLAN": {reason: "A VLAN without a NIC has no effect.", net: network.Network{Ref: ref, Type: "bridge", VLAN: 5}, want: "spec.Options.vlan: has no effect without host_device"},
		"SRIOVNamespace": {
			reason: "Only one namespace may join.", net: network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: "net"}, Type: v1.TypeSRIOV, DevicePool: "a.b/c"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(linkWarnings(&tc.net), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
