// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// poolRules are about subnets, and which addresses are handed out when.
func poolRules() []mutation {
	return []mutation{
		{
			name:        "SubnetStaysWhileHeld",
			rule:        "a subnet changes only when no entry and no DanmEp has an address outside of it",
			file:        statusDir + "draft.go",
			old:         "if slices.ContainsFunc(entries[i].Addrs(), outside) {",
			new:         "if len(entries) == 0 && slices.ContainsFunc(entries[i].Addrs(), outside) {",
			testPackage: "ipam/allocator", test: "^TestSubnetChange$",
		},
		{
			name: "SubnetStaysWhileInUse",
			rule: "a subnet changes only when no entry and no DanmEp has an address outside of it",
			file: statusDir + "draft.go",
			old:  "\t\t\tif outside(a) {\n", new: "\t\t\tif !a.IsValid() {\n",
			testPackage: "ipam/allocator", test: "^TestSubnetChange$",
		},
		{
			name:        "SubnetChangeResetsThePages",
			rule:        "the next write resets the pages",
			file:        statusDir + "draft.go",
			old:         "\t\tif err := f.reset(); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif f.Pool == nil {",
			new:         "\t\tif f.Pool == nil {",
			testPackage: "ipam/allocator", test: "^TestSubnetChange$",
		},
		{
			name:        "GrownSubnetKeepsItsAddresses",
			rule:        "a subnet grows in use: the new bitmap has all covered addresses",
			file:        statusDir + "draft.go",
			old:         "\t\tif err := d.fill(f.Pool); err != nil {\n\t\t\treturn err\n\t\t}\n",
			testPackage: "ipam/allocator", test: "^TestSubnetGrowsInUse$",
		},
		{
			name: "GrownSubnetMovesBits",
			rule: "a subnet grows in use: an address has the bit of its place in the new subnet",
			file: statusDir + "draft.go",
			old:  "\t\tif err := d.fill(f.Pool); err != nil {\n\t\t\treturn err\n\t\t}\n",
			new: "\t\tif was := d.Object.IPAM.V4; was != nil && f == &d.V4 {\n" +
				"\t\t\tf.Pool, _ = ipam.Decode(f.config(), ipam.State{CIDR: f.Pool.CIDR().String(), Pages: was.Pages})\n\t\t}\n",
			testPackage: "ipam/allocator", test: "^TestSubnetGrowsInUse$",
		},
		{
			name: "GrownSubnetKeepsLostAddresses",
			rule: "a subnet grows in use: an address in use here keeps its bit although its DanmEp was deleted by force",
			file: allocatorDir + "plan.go",
			old:  "\t\tp.draft.Family(a).Mark(a)\n\t}\n\tif p.serveClaims()", new: "\t\t_ = a\n\t}\n\tif p.serveClaims()",
			test: "^TestSubnetGrowsWithoutDanmEp$",
		},
		{
			name: "GrownSubnetKeepsQuarantines",
			rule: "a subnet grows in use: quarantined addresses stay in quarantine",
			file: allocatorDir + "plan.go",
			old:  "f.Former && (f.Subnet == nil || !f.Subnet.CIDR.Contains(a))", new: "f.Former",
			test: "^TestSubnetGrowsInUse$",
		},
		{
			name: "SubnetOnlyGrows",
			rule: "admission: while it is in use, a subnet changes to one that contains it",
			file: networkDir + "validation.go",
			old:  "is.CIDR.Bits() > was.CIDR.Bits() || ", new: "",
			test: "^TestCheckUpdate$",
		},
		{
			name: "GrownSubnetHasNewEnds",
			rule: "admission: no address in use becomes the network or broadcast address of a wider subnet",
			file: networkDir + "validation.go",
			old:  "if a := of(u); is.isEnd(a) {", new: "if a := of(u); is.isEnd(a) && !a.IsValid() {",
			test: "^TestCheckUpdateOfEnds$",
		},
		{
			name: "GatewayIsNotInUse",
			rule: "admission: no address in use becomes the gateway of a route",
			file: networkDir + "validation.go",
			old:  "if i >= 0 && !was.isGateway(r.Gateway) {", new: "if i > len(c.uses) && !was.isGateway(r.Gateway) {",
			test: "^TestCheckUpdate$",
		},
		{
			name: "HoldOfThatGeneration",
			rule: "reads the object when (uid, generation) differ in any way",
			file: allocatorDir + "warmpool.go",
			old:  "w.generation == net.Generation && !v4", new: "!v4",
			test: "^TestSubnetChangeClosesTheHold$",
		},
		{
			name: "CallersSubnetIsTheNetworks",
			rule: "a subnet changes only when nobody holds: nobody gets an address with the former mask",
			file: allocatorDir + "grant.go",
			old:  "case c.isStale(p.obj.Network):", new: "case false:",
			test: "^TestSubnetChange$",
		},
		{
			name: "GatewaysAreReserved",
			rule: "gateway addresses are never handed out dynamically",
			file: statusDir + "family.go",
			old:  "return append(f.nodeAddresses, f.Subnet.Gateways()...)", new: "return f.nodeAddresses",
			testPackage: "ipam/allocator", test: "^TestReservedAndGatewaysStayFree$",
		},
		{
			name: "NICsAreReserved",
			rule: "the nodes' own NIC addresses in the subnet are never handed out dynamically",
			file: statusDir + "family.go",
			old:  "return append(f.nodeAddresses, f.Subnet.Gateways()...)", new: "return f.Subnet.Gateways()",
			testPackage: "ipam/allocator", test: "^TestReservedAndGatewaysStayFree$",
		},
		{
			name: "ReservedLaterIsNotHeld",
			rule: "gateway addresses and the nodes' own are never handed out dynamically, by no hold either",
			file: allocatorDir + "plan.go",
			old:  "case p.target == 0, !p.draft.Family(a).IsAllocatable(a), p", new: "case p.target == 0, !p.draft.Family(a).IsAllocatable(a) && false, p",
			test: "^TestRebuiltHold$",
		},
		{
			name: "StaticPoolBounds",
			rule: "static addresses lie in static_pool",
			file: allocatorDir + "grant.go",
			old:  "if !f.Subnet.AllowsStatic(a) {", new: "if false {",
			test: "^TestClaimErrors$",
		},
		{
			name: "EndsAreReserved",
			rule: "network and broadcast (not in /31, /32, /127, /128) are never handed out",
			file: "ipam/pool.go",
			old:  "case p.reservesEnds() && (off == u128{} || off == p.last):", new: "case false:",
			test: "^TestAllocate$",
		},
		{
			name:        "NextFit",
			rule:        "next-fit from cursor, so a freed address rests as long as possible",
			file:        "ipam/pool.go",
			old:         "\t\tp.cursor = off.inc()\n",
			testPackage: "ipam/allocator", test: "^TestNextFitAcrossRestarts$",
		},
		{
			name: "CursorIsKept",
			rule: "next-fit across restarts",
			file: statusDir + "family.go",
			old:  "ipam.State{CIDR: rec.CIDR, Cursor: rec.Cursor, Pages", new: "ipam.State{CIDR: rec.CIDR, Pages",
			testPackage: "ipam/allocator", test: "^TestNextFitAcrossRestarts$",
		},
		{
			name: "StaticAnywhereInTheSubnet",
			rule: "static addresses claim their bit wherever it lies in the subnet",
			file: allocatorDir + "grant.go",
			old:  "\terr := f.Pool.Allocate(a)\n", new: "\terr := f.Pool.Allocate(a)\n\tif err == nil && !f.Pool.IsAllocatable(a) {\n\t\terr = ErrOutside\n\t}\n",
			test: "^TestStaticOutsideThePool$",
		},
	}
}
