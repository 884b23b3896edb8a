// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import "testing"

// Where a network is: device, VLAN or VXLAN, MTU, routing table.
func TestDeviceRules(t *testing.T) {
	t.Parallel()
	runRules(t, map[string]ruleCase{
		"VLAN":     {reason: "A VLAN on a NIC.", spec: `{Options: {host_device: ens4, vlan: 4094}}`},
		"VXLAN":    {reason: "A VXLAN on a NIC.", spec: `{Options: {host_device: ens4, vxlan: 16777214}}`},
		"LowVLAN":  {reason: "VLAN 0 is no VLAN.", spec: `{Options: {vlan: 0}}`, refused: []string{"spec.Options.vlan", "1"}},
		"HighVLAN": {reason: "4095 is reserved.", spec: `{Options: {vlan: 4095}}`, refused: []string{"spec.Options.vlan", "4094"}},
		"LowVNI":   {reason: "VNI 0 is not used.", spec: `{Options: {vxlan: 0}}`, refused: []string{"spec.Options.vxlan"}},
		"HighVNI":  {reason: "24 bits, all ones left out.", spec: `{Options: {vxlan: 16777215}}`, refused: []string{"spec.Options.vxlan", "16777214"}},
		"Both": {
			reason: "A network has one link.", spec: `{Options: {vlan: 5, vxlan: 5}}`,
			refused: []string{"spec.Options.vlan", "leave one of vlan and vxlan out"},
		},
		"DeviceAndPool": {
			reason: "A device is named or given.", spec: `{Options: {host_device: ens4, device_pool: a/b}}`,
			refused: []string{"spec.Options.host_device", `"ens4"`, `"a/b"`},
		},
		"EmptyDeviceAndPool": {reason: "An empty string is not set.", spec: `{Options: {host_device: "", device_pool: a/b}}`},
		"DeviceAndEmptyPool": {reason: "An empty string is not set.", spec: `{Options: {host_device: ens4, device_pool: ""}}`},
		"SRIOV":              {reason: "Virtual functions come from a pool.", spec: `{NetworkType: sriov, Options: {device_pool: a/b}}`},
		"SRIOVWithout": {
			reason: "Without a pool there is no virtual function.", spec: `{NetworkType: sriov}`,
			refused: []string{"spec.Options.device_pool", "device plugin"},
		},
		"SRIOVEmptyPool": {
			reason: "Empty is none.", spec: `{NetworkType: SRIOV, Options: {device_pool: ""}}`,
			refused: []string{"spec.Options.device_pool"},
		},
		"SRIOVWithDevice": {
			reason: "The pool decides on the device.", spec: `{NetworkType: sriov, Options: {host_device: ens4}}`,
			refused: []string{"spec.Options.host_device", `"ens4"`},
		},
		"MTU":         {reason: "IPv6's least and a jumbo frame.", spec: `{Options: {mtu: 1280}}`},
		"JumboMTU":    {reason: "IPv6's least and a jumbo frame.", spec: `{Options: {mtu: 9216}}`},
		"LowMTU":      {reason: "IPv6 needs 1280.", spec: `{Options: {mtu: 1279}}`, refused: []string{"spec.Options.mtu", "1280"}},
		"HighMTU":     {reason: "No NIC of the field does more.", spec: `{Options: {mtu: 9217}}`, refused: []string{"spec.Options.mtu", "9216"}},
		"Table":       {reason: "The last free table below the kernel's.", spec: `{Options: {rt_tables: 252}}`},
		"HighTable":   {reason: "The first above.", spec: `{Options: {rt_tables: 256}}`},
		"KernelTable": {reason: "254 is the main table.", spec: `{Options: {rt_tables: 254}}`, refused: []string{"spec.Options.rt_tables", "253 to 255"}},
		"LocalTable":  {reason: "255 is the local table.", spec: `{Options: {rt_tables: 255}}`, refused: []string{"spec.Options.rt_tables"}},
		"MinusTable":  {reason: "A table has no sign.", spec: `{Options: {rt_tables: -1}}`, refused: []string{"spec.Options.rt_tables"}},
		"WrongType":   {reason: "A number is a number.", spec: `{Options: {vlan: "5"}}`, refused: []string{"spec.Options.vlan", "integer"}},
		"EmptyStrings": {
			reason: "DANM's clients serialise every string field.",
			spec: `{NetworkType: "", Options: {host_device: "", device_pool: "", container_prefix: "", cidr: "", net6: "",
				alloc: "", alloc6: "", allocation_pool: {start: "", end: "", lastIp: ""},
				allocation_pool_v6: {cidr: "", start: "", end: "", lastIp: ""}, routes: {}, routes6: {}}}`,
		},
	})
}
