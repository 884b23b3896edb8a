// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// coverRules are about who covers a bit, and in which order that changes.
func coverRules() []row {
	return []row{
		{
			name: "ClaimAndEntryInOneWrite",
			rule: "Claim: set the bit and add the address to the own entry, in one write",
			file: "ipam/claims/grant.go",
			old:  "\t\tp.entry.of(a).Add(a)\n",
			test: "^TestClaimWritesBitAndEntryAtOnce$",
		},
		{
			name: "ListAfterRead",
			rule: "garbage collection: GET, then LIST, then a write with that GET's resourceVersion",
			file: "ipam/claims/rebuild.go",
			old:  "p.owners.has(a) {\n\t\treturn true",
			new:  "p.owners.has(a) {\n\t\treturn false",
			test: "^TestCollect",
		},
		{
			name: "SeqIsRaised",
			rule: "raises seq in its entry: a real change, so delayed writes of its former life fail",
			file: "ipam/claims/entry.go",
			old:  "return max(p.entry.seq+1, p.cfg.Life)",
			new:  "return max(p.entry.seq, p.cfg.Life)",
			test: "^TestDelayedWriteOfAFormerLife$",
		},
	}
}
