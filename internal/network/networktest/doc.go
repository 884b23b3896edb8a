// SPDX-License-Identifier: Apache-2.0

// Package networktest has the validation rules of network objects as test cases. The tests of package
// network and the tests of the generated CEL rules in an API server run the same cases, so that both
// implementations have the same rules.
package networktest

import v1 "github.com/patchbay-cni/patchbay/api/danm/v1"

// RuleCase is a network spec and the expected result.
type RuleCase struct {
	// Reason is why the rule exists.
	Reason string
	// Spec is in YAML. NetworkID "net" is added when it is left out.
	Spec string
	// Refused are parts of the expected message: the path of the field, and the rule. The spec must
	// be accepted if it is empty.
	Refused []string
	// Kinds are the kinds of the case; all three network kinds when nil.
	Kinds []string
	// SchemaOnly marks specs that a Go value cannot express, such as an explicit 0 or a string
	// for a number, and those that stored objects may have. Only the API server tests them.
	SchemaOnly bool
}

// ApplicableKinds returns the kinds of the case.
func (c RuleCase) ApplicableKinds() []string {
	if c.Kinds != nil {
		return c.Kinds
	}
	return []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork}
}

// Rules returns the cases of all groups, by "<group>/<name>".
func Rules() map[string]RuleCase {
	all := map[string]RuleCase{}
	for group, cases := range map[string]map[string]RuleCase{
		"Device": DeviceRules(), "Naming": NamingRules(), "Route": RouteRules(),
		"Subnet": SubnetRules(), "Subnet6": Subnet6Rules(), "SpecialSubnet": SpecialSubnetRules(),
		"StaticPool": StaticPoolRules(), "Trunk": TrunkRules(), "Probe": ProbeRules(), "SRIOV": SRIOVRules(),
	} {
		for name, c := range cases {
			all[group+"/"+name] = c
		}
	}
	return all
}
