// SPDX-License-Identifier: Apache-2.0

package networktest

import v1 "github.com/patchbay-cni/patchbay/api/danm/v1"

// DeviceRules are about where a network is: device, VLAN or VXLAN, MTU, routing table.
func DeviceRules() map[string]RuleCase {
	return map[string]RuleCase{
		"VLAN":     {Reason: "A VLAN on a NIC.", Spec: `{Options: {host_device: ens4, vlan: 4094}}`},
		"VXLAN":    {Reason: "A VXLAN on a NIC.", Spec: `{Options: {host_device: ens4, vxlan: 16777214}}`},
		"LowVLAN":  {Reason: "VLAN 0 is no VLAN.", SchemaOnly: true, Spec: `{Options: {vlan: 0}}`, Refused: []string{"spec.Options.vlan", "1"}},
		"HighVLAN": {Reason: "4095 is reserved.", Spec: `{Options: {vlan: 4095}}`, Refused: []string{"spec.Options.vlan", "4094"}},
		"LowVNI":   {Reason: "VNI 0 is not used.", SchemaOnly: true, Spec: `{Options: {vxlan: 0}}`, Refused: []string{"spec.Options.vxlan"}},
		"HighVNI":  {Reason: "24 bits, all ones left out.", Spec: `{Options: {vxlan: 16777215}}`, Refused: []string{"spec.Options.vxlan", "16777214"}},
		"Both": {
			Reason: "A network has one link.", Spec: `{Options: {vlan: 5, vxlan: 5}}`,
			Refused: []string{"spec.Options.vlan", "leave one of vlan and vxlan out"},
		},
		"DeviceAndPool": {
			Reason: "A device is named or given.", Spec: `{Options: {host_device: ens4, device_pool: a/b}}`,
			Refused: []string{"spec.Options.host_device", `"ens4"`, `"a/b"`},
		},
		"EmptyDeviceAndPool": {Reason: "An empty string is not set.", Spec: `{Options: {host_device: "", device_pool: a/b}}`},
		"DeviceAndEmptyPool": {Reason: "An empty string is not set.", Spec: `{Options: {host_device: ens4, device_pool: ""}}`},
		"SRIOV":              {Reason: "Virtual functions come from a pool.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b}}`},
		"SRIOVWithout": {
			Reason: "Without a pool there is no virtual function.", Spec: `{NetworkType: sriov}`,
			Refused: []string{"spec.Options.device_pool", "device plugin"},
		},
		"SRIOVEmptyPool": {
			Reason: "Empty is none.", Spec: `{NetworkType: SRIOV, Options: {device_pool: ""}}`,
			Refused: []string{"spec.Options.device_pool"},
		},
		"SRIOVWithDevice": {
			Reason: "The pool decides on the device.", Spec: `{NetworkType: sriov, Options: {host_device: ens4}}`,
			Refused: []string{"spec.Options.host_device", `"ens4"`},
		},
		"MTU":         {Reason: "IPv6's least and a jumbo frame.", Spec: `{Options: {mtu: 1280}}`},
		"JumboMTU":    {Reason: "IPv6's least and a jumbo frame.", Spec: `{Options: {mtu: 9216}}`},
		"LowMTU":      {Reason: "IPv6 needs 1280.", Spec: `{Options: {mtu: 1279}}`, Refused: []string{"spec.Options.mtu", "1280"}},
		"HighMTU":     {Reason: "No NIC of the field does more.", Spec: `{Options: {mtu: 9217}}`, Refused: []string{"spec.Options.mtu", "9216"}},
		"Table":       {Reason: "The last free table below the kernel's.", Spec: `{Options: {rt_tables: 252}}`},
		"HighTable":   {Reason: "The first above.", Spec: `{Options: {rt_tables: 256}}`},
		"KernelTable": {Reason: "254 is the main table.", Spec: `{Options: {rt_tables: 254}}`, Refused: []string{"spec.Options.rt_tables", "253 to 255"}},
		"LocalTable":  {Reason: "255 is the local table.", Spec: `{Options: {rt_tables: 255}}`, Refused: []string{"spec.Options.rt_tables"}},
		"MinusTable":  {Reason: "A table has no sign.", Spec: `{Options: {rt_tables: -1}}`, Refused: []string{"spec.Options.rt_tables"}},
		"WrongType":   {Reason: "A number is a number.", SchemaOnly: true, Spec: `{Options: {vlan: "5"}}`, Refused: []string{"spec.Options.vlan", "integer"}},
		"Guard":       {Reason: "A link of Patchbay has a guard.", Spec: `{Options: {host_device: ens4, vlan: 5, source_guard: true}}`},
		"NoGuard":     {Reason: "That is what it has.", Spec: `{NetworkType: bridge, Options: {source_guard: false}}`},
		"GuardNIC": {
			Reason: "By a NIC the node itself sends.", Spec: `{NetworkType: macvlan, Options: {host_device: ens4, source_guard: true}}`,
			Refused: []string{"spec.Options.source_guard", "set vlan or vxlan"},
		},
		"GuardSRIOV": {
			Reason: "A card sends past the node.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b, vlan: 5, source_guard: true}}`,
			Refused: []string{"spec.Options.source_guard", "leave it out"},
		},
		"GuardDelegate": {
			Reason: "What a plugin's Pods send from is not known.", Spec: `{NetworkType: bridge, Options: {source_guard: true}}`,
			Refused: []string{"spec.Options.source_guard", "leave it out"},
		},
		"EmptyStrings": {
			Reason: "DANM's clients serialise every string field.",
			Spec: `{NetworkType: "", Options: {host_device: "", device_pool: "", container_prefix: "", cidr: "", net6: "",
				alloc: "", alloc6: "", allocation_pool: {start: "", end: "", lastIp: ""},
				allocation_pool_v6: {cidr: "", start: "", end: "", lastIp: ""}, routes: {}, routes6: {}}}`,
		},
	}
}

// TrunkRules are about who lets Pods send VLAN tags, and into what.
func TrunkRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Trunk": {
			Reason: "A netadmin says whose Pods send tags into a NIC.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: MACVLAN, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`,
		},
		"NoTrunk": {Reason: "False is not set.", Spec: `{Options: {host_device: ens4, vlan: 5, trunk: false}}`},
		"TrunkForAll": {
			Reason: "All tenants would reach each other's VLANs.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "AllowedTenants"},
		},
		"TenantsTrunk": {
			Reason: "Tenants give themselves no VLAN.", Kinds: []string{v1.KindTenantNetwork, v1.KindDanmNet},
			Spec: `{Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ClusterNetwork"},
		},
		"TrunkOnVLAN": {
			Reason: "Frames of a VLAN have its tag.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {host_device: ens4, vlan: 5, trunk: true}}`, Refused: []string{"spec.Options.trunk", "vlan"},
		},
		"TrunkOnVXLAN": {
			Reason: "Tags stay out of VXLANs.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {host_device: ens4, vxlan: 5, trunk: true}}`, Refused: []string{"spec.Options.trunk", "vxlan"},
		},
		"TrunkOfPool": {
			Reason: "A virtual function's tags are the card's matter.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: sriov, AllowedTenants: [vnf], Options: {device_pool: a/b, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ipvlan or macvlan"},
		},
		"TrunkOfDelegate": {
			Reason: "Another plugin's slaves are its own matter.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: bridge, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ipvlan or macvlan"},
		},
		"TrunkOfNothing": {
			Reason: "A trunk is a NIC.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {trunk: true}}`, Refused: []string{"spec.Options.trunk", "set host_device"},
		},
	}
}

// ProbeRules are about asking the network before an address is used.
func ProbeRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Probe":   {Reason: "IPVLAN is the default type.", Spec: `{Options: {conflict_probe: true}}`},
		"NoProbe": {Reason: "A router answers for every address.", Spec: `{NetworkType: MACVLAN, Options: {conflict_probe: false}}`},
		"ProbeSRIOV": {
			Reason: "A virtual function has no host link to ask over.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b, conflict_probe: true}}`,
			Refused: []string{"spec.Options.conflict_probe", "leave it out"},
		},
		"ProbeDelegate": {
			Reason: "A plugin has an address management of its own.", Spec: `{NetworkType: bridge, Options: {conflict_probe: true}}`,
			Refused: []string{"spec.Options.conflict_probe", "leave it out"},
		},
		"NoProbeDelegate": {Reason: "That is what it does.", Spec: `{NetworkType: bridge, Options: {conflict_probe: false}}`},
	}
}
