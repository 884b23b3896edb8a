// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// Where the rules about addresses are kept.
const (
	allocatorDir = "ipam/allocator/"
	statusDir    = "ipam/status/"
	gcDir        = "ipam/gc/"
	networkDir   = "internal/network/"
)

// ownershipRules are about who covers a bit, and in which order that changes.
func ownershipRules() []mutation {
	return []mutation{
		{
			name: "ClaimIsCovered",
			rule: "Claim: set the bit and add the address to the own entry, in one write",
			file: allocatorDir + "grant.go",
			old:  "\t\tp.draft.Entry.Of(a).Add(a)\n\t\taddrs = append(addrs, a)\n", new: "\t\taddrs = append(addrs, a)\n",
			test: "^TestClaimWritesBitAndEntryAtOnce$",
		},
		{
			name: "HoldIsCovered",
			rule: "a set bit is always covered: what is held, by the node's entry",
			file: allocatorDir + "warmtarget.go",
			old:  "\t\t\tp.draft.Entry.Of(a).Add(a)\n\t\t\tp.stock", new: "\t\t\tp.stock",
			test: "^TestHoldServesWithoutAWrite$",
		},
		{
			name: "StaysUntilPublished",
			rule: "the address leaves the entry only in a write sent after its DanmEp exists",
			file: allocatorDir + "plan.go",
			old:  "case state == published:", new: "case state == published, state == claimed:",
			andChange: textChange{"s == published || s == freeing ||", "s == published || s == claimed || s == freeing ||"},
			test:      "^(TestFirstClaimSettles|TestSettle)$",
		},
		{
			name: "ReturnsToTheEntry",
			rule: "Release: (1) the address back into the own entry",
			file: allocatorDir + "localstate.go",
			old:  "\t\tcase published:\n\t\t\tl.set(a, returning)\n",
			test: "^TestLifeOfAnAddress$",
		},
		{
			name: "BitAndEntryGoTogether",
			rule: "Release: (3) bit and entry are cleared in one write",
			file: allocatorDir + "plan.go",
			old:  "\t\t\t\tp.draft.Family(a).Release(a)\n",
			test: "^TestLifeOfAnAddress$",
		},
		{
			name: "SecondReleaseIsANoop",
			rule: "only the owner releases, and a second release is a no-op",
			file: allocatorDir + "localstate.go",
			old:  "over || !known || u.owner", new: "over && !known || u.owner",
			test: "^(TestReleaseRepeatedAfterTheNextClaim|TestSecondReleaseFreesNobodyElse)$",
		},
		{
			name: "OnlyTheOwnerReleases",
			rule: "only the owner releases",
			file: allocatorDir + "localstate.go",
			old:  "|| u.owner != \"\" && u.owner != owner {", new: "{",
			test: "^TestOnlyTheOwnerReleases$",
		},
		{
			name: "LostCoverIsPutBack",
			rule: "every step keeps it true: what is in use here and lost its cover gets it back",
			file: allocatorDir + "plan.go",
			old:  "\t\tp.draft.Family(a).Mark(a)\n\t\tp.draft.Entry.Of(a).Add(a)\n",
			test: "^TestLostCoverIsPutBack$",
		},
		{
			name: "AnothersIsLeftAlone",
			rule: "no address is on two live interfaces: not after older state",
			file: allocatorDir + "plan.go",
			old:  "if p.draft.IsForeign(a) && !p.rollback.reassert {", new: "if false {",
			test: "^TestReturnOfWhatIsNotOurs$",
		},
		{
			name: "CoveredIsNotFree",
			rule: "a claim takes no address that an entry covers or that is in use here, whatever the bitmap says",
			file: allocatorDir + "plan.go",
			old:  "\tp.draft.MarkCovered(p.inUse(), func(a netip.Addr) bool { return p.state(a) == freeing })\n",
			test: "^(TestClaimSparesWhatEntriesCover|TestClaimSparesWhatIsInUseHere)$",
		},
		{
			name: "MiscountedBitmapIsNotBelieved",
			rule: "a bit that flips gives no address twice",
			file: statusDir + "draft.go",
			old:  "if d.owners == nil && (d.V4.miscounted || d.V6.miscounted) {", new: "if false {",
			testPackage: "ipam/allocator",
			test:        "^TestFlippedBit$",
		},
		{
			name: "AuditMarks",
			rule: "the audit works both ways: covered bits that are missing are set",
			file: gcDir + "bitmap.go",
			old:  "\t\td.markCovered()\n", new: "",
			test: "^TestAuditMendsAnyDamage$",
		},
		{
			name: "HandoverIsNoConflict",
			rule: "two owners of one address are those that have it at the same time",
			file: gcDir + "bitmap.go",
			old:  "return listed[uid]", new: "return true",
			test: "^TestHandoverIsNoConflict$",
		},
	}
}
