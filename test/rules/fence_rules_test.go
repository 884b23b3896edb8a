// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// fenceRules are about the two lives of one node, and about one that is cut off.
func fenceRules() []mutation {
	return []mutation{
		{
			name: "SeqIsRaised",
			rule: "raises seq in its entry: a real change, so delayed writes of its former life fail",
			file: claimsDir + "entry.go",
			old:  "return max(p.entry.seq+1, p.cfg.Life, p.book.remembered+1)", new: "return max(p.entry.seq, 1)",
			test: "^TestDelayedWriteOfAFormerLife$",
		},
		{
			name: "SeqIsJournalledBeforeUse",
			rule: "the seq of the entry is journalled before a hold of that network is used",
			file: claimsDir + "write.go",
			old:  "\td.note(p, written)\n\treturn d.remember(p.entry)\n", new: "\td.note(p, written)\n\treturn nil\n",
			test: "^TestSeqIsJournalledBeforeUse$",
		},
		{
			name: "SeqIsForgottenBeforeTheEntryGoes",
			rule: "a node that reads a smaller seq than it journalled: only older state may show one",
			file: claimsDir + "write.go",
			old:  "\tif !p.entry.present {\n\t\tif err := d.remember(p.entry); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n",
			test: "^TestSeqIsJournalledBeforeUse$",
		},
		{
			name: "GivenBackBeforeTheWrite",
			rule: "an address named in a give-back leaves the in-memory hold before the write is sent",
			file: claimsDir + "tend.go",
			old:  "s := d.shelf.Swap(nil)", new: "s := d.shelf.Load()",
			andChange: textChange{"for a, ok := h.Take(); ok; a, ok = h.Take() {", "for a := range h.All() {"},
			test:      "^TestGiveBackLeavesTheHoldFirst$",
		},
		{
			name: "ThinnedBeforeTheWrite",
			rule: "an address named in a give-back leaves the in-memory hold before the write is sent",
			file: claimsDir + "stock.go",
			old:  "\t\t\tif !p.family(a).gives(a) && s.remove(a) {\n", new: "\t\t\tif !p.family(a).gives(a) {\n",
			test: "^TestReservedLaterLeavesTheHold$",
		},
		{
			name: "RebuiltHoldSparesTheJournal",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: claimsDir + "steps.go",
			old:  "\t\tl.uses[a] = use{state: as, owner: u.Owner, static: u.static(a)}\n",
			test: "^TestRebuiltHold$",
		},
		{
			name: "RebuiltHoldSparesDanmEps",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: claimsDir + "verify.go",
			old:  "\t\t\tl.uses[a] = use{state: published, owner: name}\n",
			test: "^TestRebuiltHold$",
		},
		{
			name: "RebuiltHoldSparesLiveInterfaces",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: claimsDir + "restock.go",
			old:  "case p.owners != nil && p.owners.live[a]:", new: "case false:",
			test: "^TestRebuiltHold$",
		},
		{
			name: "LiveInterfaceKeepsItsAddress",
			rule: "no address is on two live interfaces: not after a lost journal",
			file: claimsDir + "stock.go",
			old:  "u.state == stray && !p.owners.live[a]", new: "u.state == stray",
			test: "^TestRebuiltHold$",
		},
		{
			name: "FirstWriteNeedsTheList",
			rule: "own DanmEps (consistent LIST)",
			file: claimsDir + "plan.go",
			old:  "return unverified || p.collect", new: "return unverified && false || p.collect",
			test: "^TestSettle$",
		},
		{
			name: "CutOffHandsOutNothing",
			rule: "a daemon without a successful API exchange for 10 minutes hands out nothing from holds",
			file: claimsDir + "shelf.go",
			old:  "if !d.a.cfg.Usable() {", new: "if false {",
			test: "^TestCutOffHandsOutNothing$",
		},
		{
			name: "GoneMeansThatUID",
			rule: "entries and DanmEps carry the Node's UID",
			file: claimsDir + "steward.go",
			old:  "ok && h.UID == uid {", new: "ok && h.UID+uid != \"\" {",
			test: "^TestEvict",
		},
		{
			name: "GoneFreesNoDanmEps",
			rule: "the controller frees the unused holds of a deleted Node",
			file: claimsDir + "rebuild.go",
			old:  "\tfor a := range p.owners.theirs {\n\t\tpool.MarkAllocated(a)\n\t}\n",
			test: "^TestEvict",
		},
	}
}
