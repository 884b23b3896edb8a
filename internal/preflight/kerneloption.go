// SPDX-License-Identifier: Apache-2.0

package preflight

// Availability is whether a kernel has an option.
type Availability string

// The availabilities.
const (
	// BuiltIn means that the option is part of the kernel, or its module is loaded.
	BuiltIn Availability = "built-in"
	// Loadable means that the node has the module, and it is not loaded.
	Loadable Availability = "loadable"
	// Missing means that the kernel lacks the option.
	Missing Availability = "missing"
	// Unknown means that the node has no file that tells.
	Unknown Availability = "unknown"
)

// Feature is a feature of Patchbay that needs something of nodes.
type Feature string

// The features.
const (
	IPVLAN      Feature = "ipvlan"
	MACVLAN     Feature = "macvlan"
	VLAN        Feature = "vlan"
	VXLAN       Feature = "vxlan"
	SourceGuard Feature = "source-guard"
)

// Features returns all features.
func Features() []Feature { return []Feature{IPVLAN, MACVLAN, VLAN, VXLAN, SourceGuard} }

// KernelOption is an option of the kernel that Patchbay uses.
type KernelOption struct {
	// Name is that of the module, or of the option without a module.
	Name string
	// Module is empty for an option that is no module.
	Module string
	// Config is its name in the kernel's configuration.
	Config string
	// Feature needs the option; empty for all of Patchbay.
	Feature Feature
	// Without is what does not work without the option, although the rest does. If it is empty, the feature does
	// not work at all.
	Without string
	// IncludedFrom is the version of Linux, as major and minor, from which the option is part of another one.
	IncludedFrom [2]int
}

// KernelOptions returns all options that Patchbay uses.
func KernelOptions() []KernelOption {
	const unfiltered = "any Pod can send into VXLANs"
	return []KernelOption{
		{Name: "ipvlan", Module: "ipvlan", Config: "CONFIG_IPVLAN", Feature: IPVLAN},
		{Name: "macvlan", Module: "macvlan", Config: "CONFIG_MACVLAN", Feature: MACVLAN},
		{Name: "8021q", Module: "8021q", Config: "CONFIG_VLAN_8021Q", Feature: VLAN},
		{Name: "vxlan", Module: "vxlan", Config: "CONFIG_VXLAN", Feature: VXLAN},
		{Name: "nf_tables", Module: "nf_tables", Config: "CONFIG_NF_TABLES", Feature: VXLAN, Without: unfiltered},
		{Name: "NF_TABLES_INET", Config: "CONFIG_NF_TABLES_INET", Feature: VXLAN, Without: unfiltered},
		{Name: "nft_objref", Module: "nft_objref", Config: "CONFIG_NFT_OBJREF", Feature: VXLAN, Without: unfiltered, IncludedFrom: [2]int{6, 2}},
		{Name: "sch_ingress", Module: "sch_ingress", Config: "CONFIG_NET_SCH_INGRESS", Without: "Pods can send VLAN tags"},
		{Name: "cls_bpf", Module: "cls_bpf", Config: "CONFIG_NET_CLS_BPF", Without: "Pods can send VLAN tags"},
		{Name: "NF_TABLES_NETDEV", Config: "CONFIG_NF_TABLES_NETDEV", Feature: SourceGuard},
		{Name: "NETFILTER_EGRESS", Config: "CONFIG_NETFILTER_EGRESS", Feature: SourceGuard},
	}
}
