// SPDX-License-Identifier: Apache-2.0

package networktest

import v1 "github.com/patchbay-cni/patchbay/api/danm/v1"

// DeviceRules are the cases of device, VLAN, VXLAN, MTU, routing table and source guard.
func DeviceRules() map[string]RuleCase {
	return map[string]RuleCase{
		"VLAN":     {Reason: "A network may be on a VLAN of a NIC.", Spec: `{Options: {host_device: ens4, vlan: 4094}}`},
		"VXLAN":    {Reason: "A network may be on a VXLAN over a NIC.", Spec: `{Options: {host_device: ens4, vxlan: 16777214}}`},
		"LowVLAN":  {Reason: "VLAN 0 is no VLAN.", SchemaOnly: true, Spec: `{Options: {vlan: 0}}`, Refused: []string{"spec.Options.vlan", "1"}},
		"HighVLAN": {Reason: "4095 is reserved.", Spec: `{Options: {vlan: 4095}}`, Refused: []string{"spec.Options.vlan", "4094"}},
		"LowVNI":   {Reason: "VNI 0 is not used.", SchemaOnly: true, Spec: `{Options: {vxlan: 0}}`, Refused: []string{"spec.Options.vxlan"}},
		"HighVNI":  {Reason: "A VNI has 24 bits, and DANM reserves the last value.", Spec: `{Options: {vxlan: 16777215}}`, Refused: []string{"spec.Options.vxlan", "16777214"}},
		"Both": {
			Reason: "A network has one link only.", Spec: `{Options: {vlan: 5, vxlan: 5}}`,
			Refused: []string{"spec.Options.vlan", "leave one of vlan and vxlan out"},
		},
		"DeviceAndPool": {
			Reason: "The parent is either a named NIC or a device of a pool.", Spec: `{Options: {host_device: ens4, device_pool: a/b}}`,
			Refused: []string{"spec.Options.host_device", `"ens4"`, `"a/b"`},
		},
		"EmptyDeviceAndPool": {Reason: "An empty string means not set.", Spec: `{Options: {host_device: "", device_pool: a/b}}`},
		"DeviceAndEmptyPool": {Reason: "An empty string means not set.", Spec: `{Options: {host_device: ens4, device_pool: ""}}`},
		"SRIOV":              {Reason: "Virtual functions come from a device pool.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b}}`},
		"SRIOVWithout": {
			Reason: "Without a pool there are no virtual functions.", Spec: `{NetworkType: sriov}`,
			Refused: []string{"spec.Options.device_pool", "device plugin"},
		},
		"SRIOVEmptyPool": {
			Reason: "An empty pool means not set.", Spec: `{NetworkType: SRIOV, Options: {device_pool: ""}}`,
			Refused: []string{"spec.Options.device_pool"},
		},
		"SRIOVWithDevice": {
			Reason: "The device plugin selects the device.", Spec: `{NetworkType: sriov, Options: {host_device: ens4}}`,
			Refused: []string{"spec.Options.host_device", `"ens4"`},
		},
		"SRIOVWithVXLAN": {
			Reason: "A virtual function has no VXLAN.", Spec: `{NetworkType: SRIOV, Options: {device_pool: a/b, vxlan: 5}}`,
			Refused: []string{"spec.Options.vxlan", "use vlan"},
		},
		"SRIOVMTU":    {Reason: "A virtual function has an MTU of its own.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b, vlan: 5, mtu: 9000}}`},
		"MTU":         {Reason: "The lowest MTU of IPv6 and the largest jumbo frame are allowed.", Spec: `{Options: {mtu: 1280}}`},
		"JumboMTU":    {Reason: "The lowest MTU of IPv6 and the largest jumbo frame are allowed.", Spec: `{Options: {mtu: 9216}}`},
		"LowMTU":      {Reason: "IPv6 needs an MTU of 1280.", Spec: `{Options: {mtu: 1279}}`, Refused: []string{"spec.Options.mtu", "1280"}},
		"HighMTU":     {Reason: "No common NIC supports a larger MTU.", Spec: `{Options: {mtu: 9217}}`, Refused: []string{"spec.Options.mtu", "9216"}},
		"Table":       {Reason: "252 is the last free table below the kernel's.", Spec: `{Options: {rt_tables: 252}}`},
		"HighTable":   {Reason: "256 is the first free table above the kernel's.", Spec: `{Options: {rt_tables: 256}}`},
		"KernelTable": {Reason: "254 is the main table.", Spec: `{Options: {rt_tables: 254}}`, Refused: []string{"spec.Options.rt_tables", "253 to 255"}},
		"LocalTable":  {Reason: "255 is the local table.", Spec: `{Options: {rt_tables: 255}}`, Refused: []string{"spec.Options.rt_tables"}},
		"MinusTable":  {Reason: "The number of a table is not negative.", Spec: `{Options: {rt_tables: -1}}`, Refused: []string{"spec.Options.rt_tables"}},
		"WrongType":   {Reason: "A string is not a number.", SchemaOnly: true, Spec: `{Options: {vlan: "5"}}`, Refused: []string{"spec.Options.vlan", "integer"}},
		"Guard":       {Reason: "A link of Patchbay supports the guard.", Spec: `{Options: {host_device: ens4, vlan: 5, source_guard: true}}`},
		"NoGuard":     {Reason: "False is the default of a delegated network.", Spec: `{NetworkType: bridge, Options: {source_guard: false}}`},
		"GuardNIC": {
			Reason: "The node itself sends on a NIC.", Spec: `{NetworkType: macvlan, Options: {host_device: ens4, source_guard: true}}`,
			Refused: []string{"spec.Options.source_guard", "set vlan or vxlan"},
		},
		"GuardSRIOV": {
			Reason: "A virtual function's frames do not pass the node's kernel.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b, vlan: 5, source_guard: true}}`,
			Refused: []string{"spec.Options.source_guard", "leave it out"},
		},
		"GuardDelegate": {
			Reason: "The links of another plugin's Pods are unknown.", Spec: `{NetworkType: bridge, Options: {source_guard: true}}`,
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

// TrunkRules are the cases of trunk.
func TrunkRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Trunk": {
			Reason: "A netadmin may allow a trunk for named namespaces.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: MACVLAN, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`,
		},
		"NoTrunk": {Reason: "False means not set.", Spec: `{Options: {host_device: ens4, vlan: 5, trunk: false}}`},
		"TrunkForAll": {
			Reason: "Tenants would reach each other's VLANs.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "AllowedTenants"},
		},
		"TenantsTrunk": {
			Reason: "Tenants must not choose VLANs.", Kinds: []string{v1.KindTenantNetwork, v1.KindDanmNet},
			Spec: `{Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ClusterNetwork"},
		},
		"TrunkOnVLAN": {
			Reason: "Frames on a VLAN have its tag already.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {host_device: ens4, vlan: 5, trunk: true}}`, Refused: []string{"spec.Options.trunk", "vlan"},
		},
		"TrunkOnVXLAN": {
			Reason: "A VXLAN carries no VLAN tags.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {host_device: ens4, vxlan: 5, trunk: true}}`, Refused: []string{"spec.Options.trunk", "vxlan"},
		},
		"TrunkOfPool": {
			Reason: "The NIC handles the tags of a virtual function.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: sriov, AllowedTenants: [vnf], Options: {device_pool: a/b, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ipvlan or macvlan"},
		},
		"TrunkOfDelegate": {
			Reason: "Patchbay does not control the links of another plugin.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{NetworkType: bridge, AllowedTenants: [vnf], Options: {host_device: ens4, trunk: true}}`, Refused: []string{"spec.Options.trunk", "ipvlan or macvlan"},
		},
		"TrunkOfNothing": {
			Reason: "A trunk needs a NIC.", Kinds: []string{v1.KindClusterNetwork},
			Spec: `{AllowedTenants: [vnf], Options: {trunk: true}}`, Refused: []string{"spec.Options.trunk", "set host_device"},
		},
	}
}

// ProbeRules are the cases of conflict_probe.
func ProbeRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Probe":   {Reason: "IPVLAN is the default type.", Spec: `{Options: {conflict_probe: true}}`},
		"NoProbe": {Reason: "Probes can be disabled, such as for a router that answers for every address.", Spec: `{NetworkType: MACVLAN, Options: {conflict_probe: false}}`},
		"ProbeSRIOV": {
			Reason: "A virtual function has no host link for probes.", Spec: `{NetworkType: sriov, Options: {device_pool: a/b, conflict_probe: true}}`,
			Refused: []string{"spec.Options.conflict_probe", "leave it out"},
		},
		"ProbeDelegate": {
			Reason: "Another plugin manages addresses itself.", Spec: `{NetworkType: bridge, Options: {conflict_probe: true}}`,
			Refused: []string{"spec.Options.conflict_probe", "leave it out"},
		},
		"SubnetOfDelegate": {
			Reason: "Another plugin does not get to see the subnet.", SchemaOnly: true, Spec: `{NetworkType: bridge, Options: {cidr: 10.0.0.0/24}}`,
			Refused: []string{"spec.Options.cidr", "leave cidr out"},
		},
		"Subnet6OfDelegate": {
			Reason: "Another plugin does not get to see the subnet.", SchemaOnly: true, Spec: `{NetworkType: bridge, Options: {net6: "fd00::/64"}}`,
			Refused: []string{"spec.Options.net6", "leave net6 out"},
		},
		"TableOfDelegate": {
			Reason: "Another plugin installs the routes.", SchemaOnly: true, Spec: `{NetworkType: bridge, Options: {rt_tables: 100}}`,
			Refused: []string{"spec.Options.rt_tables", "leave rt_tables out"},
		},
		"BareDelegate":    {Reason: "DANM's clients write empty strings.", Spec: `{NetworkType: bridge, Options: {cidr: "", net6: "", rt_tables: 0}}`},
		"NoProbeDelegate": {Reason: "False is the default of a delegated network.", Spec: `{NetworkType: bridge, Options: {conflict_probe: false}}`},
	}
}

// SRIOVRules are the cases of the settings of virtual functions.
func SRIOVRules() map[string]RuleCase {
	in := func(vlan, settings string) string {
		return "{NetworkType: sriov, Options: {device_pool: a/b, " + vlan + "sriov: {" + settings + "}}}"
	}
	allowed := func(reason, vlan, settings string) RuleCase {
		return RuleCase{Reason: reason, Spec: in(vlan, settings), Kinds: []string{v1.KindClusterNetwork, v1.KindDanmNet}}
	}
	refused := func(reason, vlan, settings, field, rule string) RuleCase {
		return RuleCase{
			Reason: reason, Spec: in(vlan, settings), Kinds: []string{v1.KindClusterNetwork, v1.KindDanmNet},
			Refused: []string{"spec.Options.sriov." + field, rule},
		}
	}
	const vlan = "vlan: 5, "
	return map[string]RuleCase{
		"All": allowed("All settings may be set.", vlan, `vlan_qos: 7, vlan_protocol: 802.1ad, spoof_check: false, trust: true,
			link_state: auto, min_tx_rate: 1, max_tx_rate: 2147483647, promiscuous: true`),
		"None": allowed("No setting is required.", "", ""),
		"Off":  allowed("False, 0 and an empty string are allowed without the settings that others require.", "", `vlan_qos: 0, vlan_protocol: "", link_state: "", trust: false, promiscuous: false`),
		"Of": {
			Reason: "Only virtual functions have these settings.", Spec: `{Options: {host_device: ens4, sriov: {}}}`,
			Kinds: []string{v1.KindClusterNetwork, v1.KindDanmNet}, Refused: []string{"spec.Options.sriov", "use NetworkType sriov"},
		},
		"OfDelegate": {
			Reason: "Another plugin does not get to see these settings.", Spec: `{NetworkType: host-device, Options: {device_pool: a/b, sriov: {trust: true}}}`,
			Kinds: []string{v1.KindClusterNetwork, v1.KindDanmNet}, Refused: []string{"spec.Options.sriov", "use NetworkType sriov"},
		},
		"OfTenant": {
			Reason: "Tenants must not choose settings of NICs.", Spec: in(vlan, "spoof_check: true"),
			Kinds: []string{v1.KindTenantNetwork}, Refused: []string{"spec.Options.sriov", "ClusterNetwork"},
		},
		"EmptyOfTenant": {
			Reason: "An empty object is set, too.", Spec: in(vlan, ""),
			Kinds: []string{v1.KindTenantNetwork}, Refused: []string{"spec.Options.sriov", "ClusterNetwork"},
		},
		"QoSWithoutVLAN":      refused("The priority is in the VLAN tag.", "", "vlan_qos: 1", "vlan_qos", "set vlan"),
		"HighQoS":             refused("A priority has three bits.", vlan, "vlan_qos: 8", "vlan_qos", "7"),
		"LowQoS":              refused("A priority is not negative.", vlan, "vlan_qos: -1", "vlan_qos", "0"),
		"Protocol":            allowed("The default may be set.", vlan, "vlan_protocol: 802.1q"),
		"AnyCaseProtocol":     allowed("The protocol is case-insensitive, as in sriov-cni.", vlan, "vlan_protocol: 802.1AD"),
		"OtherProtocol":       refused("There are two protocols.", vlan, "vlan_protocol: 802.1x", "vlan_protocol", "802.1q or 802.1ad"),
		"EtherType":           refused("The protocol is not a number.", vlan, `vlan_protocol: "0x8100"`, "vlan_protocol", "802.1q or 802.1ad"),
		"ProtocolWithoutVLAN": refused("The protocol is that of the VLAN tag.", "", "vlan_protocol: 802.1q", "vlan_protocol", "set vlan"),
		"Enable":              allowed("There are three link states.", "", "link_state: enable"),
		"Disable":             allowed("There are three link states.", "", "link_state: disable"),
		"OtherState":          refused("There are three link states.", "", "link_state: up", "link_state", "auto, enable or disable"),
		"AnyCaseState":        refused("The link state is case-sensitive, as in sriov-cni.", "", "link_state: Auto", "link_state", "auto, enable or disable"),
		"MinRate":             allowed("A rate may be guaranteed without a limit.", "", "min_tx_rate: 100"),
		"MaxRate":             allowed("A rate may be limited without a guarantee.", "", "max_tx_rate: 100"),
		"SameRates":           allowed("A guarantee may be as high as the limit.", "", "min_tx_rate: 100, max_tx_rate: 100"),
		"MinAboveMax":         refused("The limit would break the guarantee.", "", "min_tx_rate: 101, max_tx_rate: 100", "min_tx_rate", "must not be above max_tx_rate"),
		"MinusRate":           refused("A rate is not negative.", "", "max_tx_rate: -1", "max_tx_rate", "1"),
		"Promiscuous":         refused("Drivers ignore promiscuous mode of functions without trust.", "", "promiscuous: true", "promiscuous", "set trust to true"),
		"PromiscuousNoTrust":  refused("Drivers ignore promiscuous mode of functions without trust.", "", "promiscuous: true, trust: false", "promiscuous", "set trust to true"),
		"ZeroRate": {
			Reason: "0 means no limit to drivers, and not set in a Go value: the function would keep its limit.", SchemaOnly: true,
			Spec: in("", "max_tx_rate: 0"), Kinds: []string{v1.KindClusterNetwork}, Refused: []string{"spec.Options.sriov.max_tx_rate", "1"},
		},
	}
}
