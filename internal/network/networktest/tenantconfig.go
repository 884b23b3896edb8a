// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// TenantConfigRules are about a TenantConfig; Spec is the object without its
// metadata, and Kinds is not used.
func TenantConfigRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Devices": {
			Reason: "NICs with VLANs, VXLANs and nothing, and a pool.",
			Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-4094"}, {name: ens5, vniType: vxlan, vniRange: "1,3,5-9,16777214"},
				{name: ens6}, {name: example.com/pool, vniType: vlan, vniRange: "7"}]}`,
		},
		"NetworkIDs":   {Reason: "Types that delegate.", Spec: `{networkIds: {flannel: flannel, IPVLAN: tencharact}}`},
		"EmptyStrings": {Reason: "DANM's clients write empty strings.", Spec: `{hostDevices: [{name: ens4, vniType: "", vniRange: "", alloc: ""}]}`},
		"Nothing":      {Reason: "Tenants would get nothing.", Spec: `{}`, Refused: []string{"hostDevices and networkIds are both empty"}},
		"EmptyLists":   {Reason: "The same.", Spec: `{hostDevices: [], networkIds: {}}`, Refused: []string{"hostDevices and networkIds are both empty"}},
		"NoName":       {Reason: "Which device?", Spec: `{hostDevices: [{name: ""}]}`, Refused: []string{"hostDevices[0].name", "name of a NIC"}},
		"LongName":     {Reason: "IFNAMSIZ.", Spec: `{hostDevices: [{name: ens4}, {name: abcdefghijklmnop}]}`, Refused: []string{"hostDevices[1].name", "15 bytes"}},
		"SpaceInName":  {Reason: "No NIC has it.", Spec: `{hostDevices: [{name: "a b"}]}`, Refused: []string{"hostDevices[0].name", `"a b"`}},
		"TypeAlone":    {Reason: "Which IDs?", Spec: `{hostDevices: [{name: ens4, vniType: vlan}]}`, Refused: []string{"hostDevices[0]", "set both, or neither"}},
		"RangeAlone":   {Reason: "IDs of what?", Spec: `{hostDevices: [{name: ens4, vniRange: "1-9"}]}`, Refused: []string{"hostDevices[0]", "set both, or neither"}},
		"OtherType":    {Reason: "There are two.", Spec: `{hostDevices: [{name: ens4, vniType: gre, vniRange: "1-9"}]}`, Refused: []string{"hostDevices[0].vniType", "vlan or vxlan"}},
		"Words":        {Reason: "Not a range.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: all}]}`, Refused: []string{"hostDevices[0].vniRange", "1000-2000,2500"}},
		"Space":        {Reason: "One way of writing.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1, 2"}]}`, Refused: []string{"hostDevices[0].vniRange", "white space"}},
		"OpenRange":    {Reason: "Up to where?", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-"}]}`, Refused: []string{"hostDevices[0].vniRange"}},
		"ThreeEnds":    {Reason: "Not a range.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-2-3"}]}`, Refused: []string{"hostDevices[0].vniRange"}},
		"Zero":         {Reason: "VLAN 0 is no VLAN.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "0-9"}]}`, Refused: []string{"hostDevices[0].vniRange", "1 to 4094"}},
		"HighVLAN":     {Reason: "4095 is reserved.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "9-4095"}]}`, Refused: []string{"hostDevices[0].vniRange", "4094"}},
		"HighVNI":      {Reason: "24 bits.", Spec: `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "16777215"}]}`, Refused: []string{"hostDevices[0].vniRange", "16777214"}},
		"Backwards":    {Reason: "A typing error.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1,9-8"}]}`, Refused: []string{"hostDevices[0].vniRange", "ends before it begins"}},
		"Overlap": {
			Reason: "A VNI exists once on a node.", Refused: []string{"vniRange", "ens4", "overlap", "disjoint"},
			Spec: `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "1,5-9"}, {name: ens5, vniType: vxlan, vniRange: "2-3,9-12"}]}`,
		},
		"OverlapSameDevice": {
			Reason: "Both say the same.",
			Spec:   `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "5-9"}, {name: ens4, vniType: vxlan, vniRange: "9-12"}]}`,
		},
		"OverlapVLAN": {
			Reason: "A VLAN ID exists once per NIC.",
			Spec:   `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9"}, {name: ens5, vniType: vlan, vniRange: "5-9"}, {name: ens6, vniType: vxlan, vniRange: "5-9"}]}`,
		},
		"ManyVXLANs":    {Reason: "As many as are compared.", Spec: vxlanDevices(128)},
		"TooManyVXLANs": {Reason: "One more.", Spec: vxlanDevices(129), Refused: []string{"vniRange", "at most 128"}},
		"ManyVLANs":     {Reason: "VLANs are not compared.", Spec: manyVLANs()},
		"EmptyKey":      {Reason: "Which type?", Spec: `{networkIds: {"": a}}`, Refused: []string{"networkIds", "NetworkType"}},
		"EmptyValue":    {Reason: "Which ID?", Spec: `{networkIds: {flannel: ""}}`, Refused: []string{"networkIds[flannel]", "NetworkID"}},
		"PathInValue":   {Reason: "It becomes a file's name.", Spec: `{networkIds: {flannel: ../x}}`, Refused: []string{"networkIds[flannel]", "letters, digits"}},
		"PathInKey":     {Reason: "It becomes an executable's name.", Spec: `{networkIds: {../sh: x}}`, Refused: []string{"networkIds", "letters, digits"}},
		"LongID":        {Reason: "A link bears it.", Spec: `{networkIds: {MacVLAN: elevenchars}}`, Refused: []string{"networkIds", "10 characters"}},
		"Subnets":       {Reason: "Of both families.", Spec: `{hostDevices: [{name: ens4}], subnets: [10.0.0.0/8, "fd00::/32"], allowedClusterSubnets: [192.0.2.0/24]}`},
		"NoSubnet":      {Reason: "An address.", Spec: `{hostDevices: [{name: ens4}], subnets: [10.0.0.0/8, 10.0.0.1]}`, Refused: []string{"subnets[1]", "10.0.0.0/8"}},
		"MappedSubnet":  {Reason: "IPv4 in IPv6's clothes.", Spec: `{hostDevices: [{name: ens4}], allowedClusterSubnets: ["::ffff:10.0.0.0/104"]}`, Refused: []string{"allowedClusterSubnets[0]", "prefix length"}},
		"Budgets":       {Reason: "All three.", Spec: `{hostDevices: [{name: ens4}], budgets: {networks: 0, ids: 4094, idsWithoutNetwork: 1}}`},
		"BudgetBelow":   {Reason: "Less than nothing.", Spec: `{hostDevices: [{name: ens4}], budgets: {ids: -1}}`, Refused: []string{"budgets.ids", "greater than or equal to 0"}},
		"NothingAtOnce": {Reason: "No network could be created.", Spec: `{hostDevices: [{name: ens4}], budgets: {idsWithoutNetwork: 0}}`, Refused: []string{"budgets.idsWithoutNetwork", "greater than or equal to 1"}},
		"ManyAtOnce":    {Reason: "They have no object to see or delete.", Spec: `{hostDevices: [{name: ens4}], budgets: {idsWithoutNetwork: 3}}`, Refused: []string{"budgets.idsWithoutNetwork", "less than or equal to 2"}},
		"LongFile":      {Reason: "A file may.", Spec: `{networkIds: {flannel: elevenchars}}`},
	}
}

// vxlanDevices has n devices with one VNI each.
func vxlanDevices(n int) string {
	var b strings.Builder
	b.WriteString("hostDevices:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: e%d, vniType: vxlan, vniRange: \"%d\"}\n", i, i+1)
	}
	return b.String()
}

// manyVLANs is as large as a TenantConfig may be.
func manyVLANs() string {
	var b strings.Builder
	b.WriteString("hostDevices:\n")
	ranges := strings.Repeat("1-4094,", 36) + "1"
	for i := range 256 {
		fmt.Fprintf(&b, "- {name: e%d, vniType: vlan, vniRange: \"%s\"}\n", i, ranges)
	}
	return b.String()
}
