// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"strings"
)

// TenantConfigRules are the cases of a TenantConfig. Spec is the object without its
// metadata, and Kinds is not used.
func TenantConfigRules() map[string]RuleCase {
	return map[string]RuleCase{
		"Devices": {
			Reason: "Devices may be NICs with VLANs, with VXLANs and without VNIs, and device pools.",
			Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-4094"}, {name: ens5, vniType: vxlan, vniRange: "1,3,5-9,16777214"},
				{name: ens6}, {name: example.com/pool, vniType: vlan, vniRange: "7"}]}`,
		},
		"NetworkIDs":   {Reason: "NetworkIDs may be for own and delegated types.", Spec: `{networkIds: {flannel: flannel, IPVLAN: tencharact}}`},
		"EmptyStrings": {Reason: "DANM's clients write empty strings.", Spec: `{hostDevices: [{name: ens4, vniType: "", vniRange: "", alloc: ""}]}`},
		"Nothing":      {Reason: "A TenantConfig without devices and NetworkIDs gives tenants nothing.", Spec: `{}`, Refused: []string{"empty together with networkIds"}},
		"EmptyLists":   {Reason: "Empty lists mean not set.", Spec: `{hostDevices: [], networkIds: {}}`, Refused: []string{"empty together with networkIds"}},
		"NoName":       {Reason: "A device needs a name.", Spec: `{hostDevices: [{name: ""}]}`, Refused: []string{"hostDevices[0].name", "name of a NIC"}},
		"LongName":     {Reason: "The name of a NIC has at most 15 bytes.", Spec: `{hostDevices: [{name: ens4}, {name: abcdefghijklmnop}]}`, Refused: []string{"hostDevices[1].name", "15 bytes"}},
		"SpaceInName":  {Reason: "The name of a NIC has no white space.", Spec: `{hostDevices: [{name: "a b"}]}`, Refused: []string{"hostDevices[0].name", `"a b"`}},
		"TypeAlone":    {Reason: "A vniType needs a vniRange.", Spec: `{hostDevices: [{name: ens4, vniType: vlan}]}`, Refused: []string{"hostDevices[0]", "set both, or neither"}},
		"RangeAlone":   {Reason: "A vniRange needs a vniType.", Spec: `{hostDevices: [{name: ens4, vniRange: "1-9"}]}`, Refused: []string{"hostDevices[0]", "set both, or neither"}},
		"OtherType":    {Reason: "There are two types of VNIs.", Spec: `{hostDevices: [{name: ens4, vniType: gre, vniRange: "1-9"}]}`, Refused: []string{"hostDevices[0].vniType", "vlan or vxlan"}},
		"PoolVXLAN":    {Reason: "Virtual functions have no VXLAN.", SchemaOnly: true, Spec: `{hostDevices: [{name: example.com/pool, vniType: vxlan, vniRange: "1-9"}]}`, Refused: []string{"hostDevices[].vniType", "vlan for the device pool example.com/pool"}},
		"Words":        {Reason: "The text must be a list of ranges.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: all}]}`, Refused: []string{"hostDevices[0].vniRange", "1000-2000,2500"}},
		"Space":        {Reason: "White space is not allowed in a list.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1, 2"}]}`, Refused: []string{"hostDevices[0].vniRange", "white space"}},
		"OpenRange":    {Reason: "A range needs its second end.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-"}]}`, Refused: []string{"hostDevices[0].vniRange"}},
		"ThreeEnds":    {Reason: "The text must be a list of ranges.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1-2-3"}]}`, Refused: []string{"hostDevices[0].vniRange"}},
		"Zero":         {Reason: "VLAN 0 is no VLAN.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "0-9"}]}`, Refused: []string{"hostDevices[0].vniRange", "1 to 4094"}},
		"HighVLAN":     {Reason: "4095 is reserved.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "9-4095"}]}`, Refused: []string{"hostDevices[0].vniRange", "4094"}},
		"HighVNI":      {Reason: "A VNI has 24 bits, and DANM reserves the last value.", Spec: `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "16777215"}]}`, Refused: []string{"hostDevices[0].vniRange", "16777214"}},
		"Backwards":    {Reason: "A range must be in order.", Spec: `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "1,9-8"}]}`, Refused: []string{"hostDevices[0].vniRange", "ends before it begins"}},
		"Overlap": {
			Reason: "A VNI exists once on a node.", Refused: []string{"vniRange", "ens4", "overlap", "disjoint"},
			Spec: `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "1,5-9"}, {name: ens5, vniType: vxlan, vniRange: "2-3,9-12"}]}`,
		},
		"OverlapSameDevice": {
			Reason: "Overlapping ranges of one device are unambiguous.",
			Spec:   `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "5-9"}, {name: ens4, vniType: vxlan, vniRange: "9-12"}]}`,
		},
		"OverlapVLAN": {
			Reason: "A VLAN ID exists once per NIC.",
			Spec:   `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9"}, {name: ens5, vniType: vlan, vniRange: "5-9"}, {name: ens6, vniType: vxlan, vniRange: "5-9"}]}`,
		},
		"ManyVXLANs":    {Reason: "128 VXLAN ranges are allowed.", Spec: vxlanDevices(128)},
		"TooManyVXLANs": {Reason: "129 VXLAN ranges are too many.", Spec: vxlanDevices(129), Refused: []string{"vniRange", "at most 128"}},
		"ManyVLANs":     {Reason: "VLAN ranges are not compared with each other, so their number is not limited.", Spec: manyVLANs()},
		"EmptyKey":      {Reason: "A key must be a NetworkType.", Spec: `{networkIds: {"": a}}`, Refused: []string{"networkIds", "NetworkType"}},
		"EmptyValue":    {Reason: "A value must be a NetworkID.", Spec: `{networkIds: {flannel: ""}}`, Refused: []string{"networkIds[flannel]", "NetworkID"}},
		"PathInValue":   {Reason: "The NetworkID becomes the name of a file.", Spec: `{networkIds: {flannel: ../x}}`, Refused: []string{"networkIds[flannel]", "letters, digits"}},
		"PathInKey":     {Reason: "The NetworkType becomes the name of an executable.", Spec: `{networkIds: {../sh: x}}`, Refused: []string{"networkIds", "letters, digits"}},
		"LongID":        {Reason: "The NetworkID is in the names of links.", Spec: `{networkIds: {MacVLAN: elevenchars}}`, Refused: []string{"networkIds", "10 characters"}},
		"Subnets":       {Reason: "Subnets may be of both families.", Spec: `{hostDevices: [{name: ens4}], subnets: [10.0.0.0/8, "fd00::/32"], allowedClusterSubnets: [192.0.2.0/24]}`},
		"NoSubnet":      {Reason: "An address is not a subnet.", Spec: `{hostDevices: [{name: ens4}], subnets: [10.0.0.0/8, 10.0.0.1]}`, Refused: []string{"subnets[1]", "10.0.0.0/8"}},
		"MappedSubnet":  {Reason: "An IPv4-mapped subnet is not an IPv6 subnet.", Spec: `{hostDevices: [{name: ens4}], allowedClusterSubnets: ["::ffff:10.0.0.0/104"]}`, Refused: []string{"allowedClusterSubnets[0]", "prefix length"}},
		"Budgets":       {Reason: "All budgets may be set.", Spec: `{hostDevices: [{name: ens4}], budgets: {networks: 0, ids: 4094, idsWithoutNetwork: 1}}`},
		"BudgetBelow":   {Reason: "A budget must not be negative.", Spec: `{hostDevices: [{name: ens4}], budgets: {ids: -1}}`, Refused: []string{"budgets.ids", "greater than or equal to 0"}},
		"NothingAtOnce": {Reason: "Without a reservation no network could be created.", Spec: `{hostDevices: [{name: ens4}], budgets: {idsWithoutNetwork: 0}}`, Refused: []string{"budgets.idsWithoutNetwork", "greater than or equal to 1"}},
		"ManyAtOnce":    {Reason: "Reservations without a network have no object that a tenant can see or delete.", Spec: `{hostDevices: [{name: ens4}], budgets: {idsWithoutNetwork: 3}}`, Refused: []string{"budgets.idsWithoutNetwork", "less than or equal to 2"}},
		"LongFile":      {Reason: "The name of a file may be longer than that of a link.", Spec: `{networkIds: {flannel: elevenchars}}`},
	}
}

// vxlanDevices returns n devices with one VNI each.
func vxlanDevices(n int) string {
	var b strings.Builder
	b.WriteString("hostDevices:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: e%d, vniType: vxlan, vniRange: \"%d\"}\n", i, i+1)
	}
	return b.String()
}

// manyVLANs returns the largest TenantConfig that is allowed.
func manyVLANs() string {
	var b strings.Builder
	b.WriteString("hostDevices:\n")
	ranges := strings.Repeat("1-4094,", 36) + "1"
	for i := range 256 {
		fmt.Fprintf(&b, "- {name: e%d, vniType: vlan, vniRange: \"%s\"}\n", i, ranges)
	}
	return b.String()
}
