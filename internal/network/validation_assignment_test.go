// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestCheckAssignment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, kind, spec, assigned string
		refused                      []string
	}{
		"AssignedVLAN": {
			reason: "The VLAN is assigned.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vlan: 500}}`,
			assigned: "vlan/ens4/500 0123456789abcdef",
		},
		"AssignedVXLAN": {
			reason: "The VXLAN is assigned.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vxlan: 500}}`,
			assigned: "vxlan/ens4/500 0123456789abcdef",
		},
		"AssignedPool": {
			reason: "The device pool is assigned.", kind: v1.KindTenantNetwork, spec: `{NetworkType: sriov, Options: {device_pool: a.b/c, vlan: 500}}`,
			assigned: "vlan/a.b/c/500 0123456789abcdef",
		},
		"AssignedNIC": {
			reason: "The device has no IDs, and the number has no meaning.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4}}`,
			assigned: "nic/ens4/9 0123456789abcdef",
		},
		"AssignedType": {
			reason: "The plugin is assigned.", kind: v1.KindTenantNetwork, spec: `{NetworkType: flannel}`,
			assigned: "type/flannel/1 0123456789abcdef",
		},
		"OtherVLAN": {
			reason: "The VLAN is not assigned.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vlan: 501}}`,
			assigned: "vlan/ens4/500 0123456789abcdef", refused: []string{"spec.Options.vlan", "501", "use 500"},
		},
		"VLANTakenOut": {
			reason: "On the NIC itself the network would see all VLANs.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4}}`,
			assigned: "vlan/ens4/500 0123456789abcdef", refused: []string{"spec.Options.vlan", "use 500"},
		},
		"OtherKind": {
			reason: "A VXLAN with the number of the assigned VLAN is not assigned.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vxlan: 500}}`,
			assigned: "vlan/ens4/500 0123456789abcdef", refused: []string{"spec.Options.vlan", "spec.Options.vxlan", "leave it out"},
		},
		"OtherType": {
			reason: "The plugin is not assigned.", kind: v1.KindTenantNetwork, spec: `{NetworkType: bridge}`,
			assigned: "type/flannel/1 0123456789abcdef", refused: []string{"spec.NetworkType", "bridge"},
		},
		"BadAnnotation": {
			reason: "The annotation is invalid.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vlan: 500}}`,
			assigned: "vlan/ens4/500", refused: []string{"danm.io/assigned", "16 hexadecimal digits"},
		},
		"Logical":        {reason: "A network without physical attributes needs no assignment.", kind: v1.KindTenantNetwork, spec: `{Options: {cidr: 10.0.0.0/24}}`},
		"ClusterNetwork": {reason: "A ClusterNetwork is not restricted.", kind: v1.KindClusterNetwork, spec: `{NetworkType: bridge, Options: {host_device: ens4, vlan: 500}}`},
		"DanmNet":        {reason: "A DanmNet is not restricted.", kind: v1.KindDanmNet, spec: `{NetworkType: bridge, Options: {host_device: ens4, vxlan: 500}}`},
		"Delegate": {
			reason: "A tenant must not choose a plugin, which root executes.", kind: v1.KindTenantNetwork, spec: `{NetworkType: bridge}`,
			refused: []string{"TenantNetwork/ns/net", "spec.NetworkType", `"bridge"`, "that a TenantConfig assigns", "ClusterNetwork"},
		},
		"Device": {
			reason: "A tenant must not choose a NIC.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4}}`,
			refused: []string{"spec.Options.host_device", `"ens4"`, "TenantConfig"},
		},
		"VLAN": {
			reason: "A tenant must not choose a VLAN, and every field is reported.", kind: v1.KindTenantNetwork, spec: `{Options: {host_device: ens4, vlan: 500}}`,
			refused: []string{"spec.Options.host_device", "spec.Options.vlan", "500"},
		},
		"VXLAN": {
			reason: "A tenant must not choose a VXLAN.", kind: v1.KindTenantNetwork, spec: `{Options: {vxlan: 700}}`,
			refused: []string{"spec.Options.vxlan", "700"},
		},
		"DevicePool": {
			reason: "A tenant must not choose a device pool.", kind: v1.KindTenantNetwork, spec: `{NetworkType: sriov, Options: {device_pool: example.com/vf}}`,
			refused: []string{"spec.Options.device_pool", "example.com/vf"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.kind, tc.spec)
			o.SetAnnotations(map[string]string{v1.AssignedAnnotation: tc.assigned})
			n, err := network.FromObject(o)
			if err != nil {
				t.Fatal(err)
			}
			err = network.CheckAssignment(n)
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nCheckAssignment: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nCheckAssignment: got %q, want %q in it", tc.reason, err, part)
				}
			}
		})
	}
}
