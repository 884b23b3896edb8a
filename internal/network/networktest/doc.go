// SPDX-License-Identifier: Apache-2.0

// Package networktest holds the rules of a network object as cases. Two parties
// run the same ones: package network, which turns objects into the model, and the
// API server with the generated CEL rules. So the two cannot drift apart.
package networktest

import v1 "github.com/patchbay-cni/patchbay/api/danm/v1"

// RuleCase is a network spec and what is said to it.
type RuleCase struct {
	// Reason is why the rule is there.
	Reason string
	// Spec is in YAML. NetworkID "net" is added when it is left out.
	Spec string
	// Refused are parts of the message: the field's path and what would be right.
	// None means accepted.
	Refused []string
	// Kinds it is for; all three network kinds when nil.
	Kinds []string
	// SchemaOnly marks what a Go value cannot say, such as an explicit 0 or a
	// string for a number: only the API server sees it.
	SchemaOnly bool
}

// ApplicableKinds returns the kinds that the case is for.
func (c RuleCase) ApplicableKinds() []string {
	if c.Kinds != nil {
		return c.Kinds
	}
	return []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork}
}

// Rules are all cases, each under its group's name and its own.
func Rules() map[string]RuleCase {
	all := map[string]RuleCase{}
	for group, cases := range map[string]map[string]RuleCase{
		"Device": DeviceRules(), "Naming": NamingRules(), "Route": RouteRules(),
		"Subnet": SubnetRules(), "Subnet6": Subnet6Rules(), "SpecialSubnet": SpecialSubnetRules(),
		"StaticPool": StaticPoolRules(), "Trunk": TrunkRules(), "Probe": ProbeRules(),
	} {
		for name, c := range cases {
			all[group+"/"+name] = c
		}
	}
	return all
}
