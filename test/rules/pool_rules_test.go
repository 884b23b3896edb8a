// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// poolRules are about subnets, and which addresses are handed out when.
func poolRules() []mutation {
	return []mutation{
		{
			name: "SubnetStaysWhileHeld",
			rule: "a subnet changes only when no entry and no DanmEp has an address outside of it",
			file: claimsDir + "rebuild.go",
			old:  "if slices.ContainsFunc(entries[i].addrs(), outside) {",
			new:  "if len(entries) == 0 && slices.ContainsFunc(entries[i].addrs(), outside) {",
			test: "^TestSubnetChange$",
		},
		{
			name: "SubnetStaysWhileInUse",
			rule: "a subnet changes only when no entry and no DanmEp has an address outside of it",
			file: claimsDir + "rebuild.go",
			old:  "\t\t\tif outside(a) {\n", new: "\t\t\tif !a.IsValid() {\n",
			test: "^TestSubnetChange$",
		},
		{
			name: "SubnetChangeResetsThePages",
			rule: "the next write resets the pages",
			file: claimsDir + "rebuild.go",
			old:  "\t\tif err := f.reset(); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif f.pool == nil {",
			new:  "\t\tif f.pool == nil {",
			test: "^TestSubnetChange$",
		},
		{
			name: "HoldOfThatGeneration",
			rule: "reads the object when (uid, generation) differ in any way",
			file: claimsDir + "shelf.go",
			old:  "s == nil || s.generation != net.Generation ||", new: "s == nil ||",
			test: "^TestSubnetChangeClosesTheHold$",
		},
		{
			name: "CallersSubnetIsTheNetworks",
			rule: "a subnet changes only when nobody holds: nobody gets an address with the former mask",
			file: claimsDir + "grant.go",
			old:  "case c.stale(p.obj.Network):", new: "case false:",
			test: "^TestSubnetChange$",
		},
		{
			name: "GatewaysAreReserved",
			rule: "gateway addresses are never handed out dynamically",
			file: claimsDir + "family.go",
			old:  "\t\tcfg.Reserved = append(cfg.Reserved, r.Gateway)\n", new: "\t\t_ = r\n",
			test: "^TestReservedAndGatewaysStayFree$",
		},
		{
			name: "NICsAreReserved",
			rule: "the nodes' own NIC addresses in the subnet are never handed out dynamically",
			file: claimsDir + "family.go",
			old:  "End: f.spec.End, Reserved: f.reserved}", new: "End: f.spec.End}",
			test: "^TestReservedAndGatewaysStayFree$",
		},
		{
			name: "ReservedLaterIsNotHeld",
			rule: "gateway addresses and the nodes' own are never handed out dynamically, by no hold either",
			file: claimsDir + "restock.go",
			old:  "case p.mark == 0, !f.gives(a), p", new: "case p.mark == 0, !f.gives(a) && false, p",
			test: "^TestRebuiltHold$",
		},
		{
			name: "StaticPoolBounds",
			rule: "static addresses lie in static_pool",
			file: claimsDir + "grant.go",
			old:  "if !f.spec.AllowsStatic(a) {", new: "if false {",
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
			testPackage: "ipam/claims", test: "^TestNextFitAcrossRestarts$",
		},
		{
			name: "CursorIsKept",
			rule: "next-fit across restarts",
			file: claimsDir + "family.go",
			old:  "ipam.State{CIDR: rec.CIDR, Cursor: rec.Cursor, Pages", new: "ipam.State{CIDR: rec.CIDR, Pages",
			test: "^TestNextFitAcrossRestarts$",
		},
		{
			name: "StaticAnywhereInTheSubnet",
			rule: "static addresses claim their bit wherever it lies in the subnet",
			file: claimsDir + "grant.go",
			old:  "\terr := f.pool.Allocate(a)\n", new: "\terr := f.pool.Allocate(a)\n\tif err == nil && !f.pool.IsAllocatable(a) {\n\t\terr = ErrOutside\n\t}\n",
			test: "^TestStaticOutsideThePool$",
		},
	}
}
