// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// claimsDir is where most rules are kept.
const claimsDir = "ipam/claims/"

// ownershipRules are about who covers a bit, and in which order that changes.
func ownershipRules() []mutation {
	return []mutation{
		{
			name: "ClaimIsCovered",
			rule: "Claim: set the bit and add the address to the own entry, in one write",
			file: claimsDir + "grant.go",
			old:  "\t\tp.entry.of(a).Add(a)\n\t\taddrs = append(addrs, a)\n", new: "\t\taddrs = append(addrs, a)\n",
			test: "^TestClaimWritesBitAndEntryAtOnce$",
		},
		{
			name: "HoldIsCovered",
			rule: "a set bit is always covered: what is held, by the node's entry",
			file: claimsDir + "restock.go",
			old:  "\t\t\tp.entry.of(a).Add(a)\n\t\t\tp.stock", new: "\t\t\tp.stock",
			test: "^TestHoldServesWithoutAWrite$",
		},
		{
			name: "StaysUntilPublished",
			rule: "the address leaves the entry only in a write sent after its DanmEp exists",
			file: claimsDir + "cover.go",
			old:  "case u.state == published:", new: "case u.state == published, u.state == claimed:",
			andChange: textChange{"if u.state == published || u", "if u.state == published || u.state == claimed || u"},
			test:      "^(TestFirstClaimSettles|TestSettle)$",
		},
		{
			name: "ReturnsToTheEntry",
			rule: "Release: (1) the address back into the own entry",
			file: claimsDir + "steps.go",
			old:  "\t\tcase published:\n\t\t\tl.set(a, returning)\n",
			test: "^TestLifeOfAnAddress$",
		},
		{
			name: "BitAndEntryGoTogether",
			rule: "Release: (3) bit and entry are cleared in one write",
			file: claimsDir + "cover.go",
			old:  "\t\t\tp.family(a).release(a)\n",
			test: "^TestLifeOfAnAddress$",
		},
		{
			name: "SecondReleaseIsANoop",
			rule: "only the owner releases, and a second release is a no-op",
			file: claimsDir + "steps.go",
			old:  "over || !known || u.owner", new: "over && !known || u.owner",
			test: "^(TestReleaseRepeatedAfterTheNextClaim|TestSecondReleaseFreesNobodyElse)$",
		},
		{
			name: "OnlyTheOwnerReleases",
			rule: "only the owner releases",
			file: claimsDir + "steps.go",
			old:  "|| u.owner != \"\" && u.owner != owner {", new: "{",
			test: "^TestOnlyTheOwnerReleases$",
		},
		{
			name: "LostCoverIsPutBack",
			rule: "every step keeps it true: what is in use here and lost its cover gets it back",
			file: claimsDir + "cover.go",
			old:  "\t\tp.family(a).mark(a)\n\t\tp.entry.of(a).Add(a)\n",
			test: "^TestLostCoverIsPutBack$",
		},
		{
			name: "AnothersIsLeftAlone",
			rule: "no address is on two live interfaces: not after older state",
			file: claimsDir + "cover.go",
			old:  "if p.foreign(a) && !p.reassert {", new: "if false {",
			test: "^TestReturnOfWhatIsNotOurs$",
		},
		{
			name: "CoveredIsNotFree",
			rule: "a claim takes no address that an entry covers or that is in use here, whatever the bitmap says",
			file: claimsDir + "plan.go",
			old:  "if p.mend(); p.marked > 0 {", new: "if p.marked > 0 {",
			test: "^(TestClaimSparesWhatEntriesCover|TestClaimSparesWhatIsInUseHere)$",
		},
		{
			name: "MiscountedBitmapIsNotBelieved",
			rule: "a bit that flips gives no address twice",
			file: claimsDir + "plan.go",
			old:  "if p.owners == nil && p.miscounted() {", new: "if false {",
			test: "^TestFlippedBit$",
		},
		{
			name: "AuditMarks",
			rule: "the audit works both ways: covered bits that are missing are set",
			file: claimsDir + "audit.go",
			old:  "\t\tp.mend()\n\t\tp.sweep()\n", new: "\t\tp.sweep()\n",
			test: "^TestAuditMendsAnyDamage$",
		},
		{
			name: "HandoverIsNoConflict",
			rule: "two owners of one address are those that have it at the same time",
			file: claimsDir + "audit.go",
			old:  "return listed[uid]", new: "return true",
			test: "^TestHandoverIsNoConflict$",
		},
	}
}
