// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// fenceRules are about the two lives of one node, and about one that is cut off.
func fenceRules() []mutation {
	return []mutation{
		{
			name: "SeqIsRaised",
			rule: "raises seq in its entry: a real change, so delayed writes of its former life fail",
			file: allocatorDir + "rollback.go",
			old:  "return max(seq+1, incarnation, s.journalled+1)", new: "return max(seq, 1)",
			test: "^TestDelayedWriteOfAFormerLife$",
		},
		{
			name: "SeqIsJournalledBeforeUse",
			rule: "the seq of the entry is journalled before a hold of that network is used",
			file: allocatorDir + "commit.go",
			old:  "\tn.observeWritten(p, r, written)\n\treturn n.journalSeq(p.entry)\n", new: "\tn.observeWritten(p, r, written)\n\treturn nil\n",
			test: "^TestSeqIsJournalledBeforeUse$",
		},
		{
			name: "SeqIsForgottenBeforeTheEntryGoes",
			rule: "a node that reads a smaller seq than it journalled: only older state may show one",
			file: allocatorDir + "commit.go",
			old:  "\tif !p.entry.Present {\n\t\tif err := n.journalSeq(p.entry); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n",
			test: "^TestSeqIsJournalledBeforeUse$",
		},
		{
			name: "GivenBackBeforeTheWrite",
			rule: "an address named in a give-back leaves the in-memory hold before the write is sent",
			file: allocatorDir + "warmpool.go",
			old:  "w := n.warm.Swap(nil)", new: "w := n.warm.Load()",
			andChange: textChange{"left, addressless := w.close()", "left, addressless := append(append([]netip.Addr(nil), w.contents().v4...), w.contents().v6...), 0"},
			test:      "^TestGiveBackLeavesTheHoldFirst$",
		},
		{
			name: "ThinnedBeforeTheWrite",
			rule: "an address named in a give-back leaves the in-memory hold before the write is sent",
			file: allocatorDir + "warmpool.go",
			old:  "\t\tif w.remove(a) {\n\t\t\twithdrawn", new: "\t\tif w.remove(a) && w.put(a) {\n\t\t\twithdrawn",
			test: "^TestReservedLaterLeavesTheHold$",
		},
		{
			name: "RebuiltHoldSparesTheJournal",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: allocatorDir + "localstate.go",
			old:  "\t\tl.uses[a] = use{state: as, owner: u.Owner, static: a.Is4() && u.Static4 || a.Is6() && u.Static6}\n",
			test: "^TestRebuiltHold$",
		},
		{
			name: "RebuiltHoldSparesDanmEps",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: allocatorDir + "localstate.go",
			old:  "\t\t\tl.uses[a] = use{state: published, owner: name}\n",
			test: "^TestRebuiltHold$",
		},
		{
			name: "RebuiltHoldSparesLiveInterfaces",
			rule: "a hold rebuilt after a restart is: own entry − journal − own DanmEps − live addresses",
			file: allocatorDir + "plan.go",
			old:  "case p.danmEps != nil && p.danmEps.live[a]:", new: "case false:",
			test: "^TestRebuiltHold$",
		},
		{
			name: "LiveInterfaceKeepsItsAddress",
			rule: "no address is on two live interfaces: not after a lost journal",
			file: allocatorDir + "plan.go",
			old:  "if p.danmEps != nil && !p.danmEps.live[a] {", new: "if p.danmEps != nil {",
			test: "^TestRebuiltHold$",
		},
		{
			name: "FirstWriteNeedsTheList",
			rule: "own DanmEps (consistent LIST)",
			file: allocatorDir + "commit.go",
			old:  "if (unverified || s.collect", new: "if (unverified && false || s.collect",
			test: "^TestSettle$",
		},
		{
			name: "CutOffHandsOutNothing",
			rule: "a daemon without a successful API exchange for 10 minutes hands out nothing from holds",
			file: allocatorDir + "warmpool.go",
			old:  "if w == nil || !n.a.cfg.Usable() {", new: "if w == nil {",
			test: "^TestCutOffHandsOutNothing$",
		},
		{
			name: "GoneMeansThatUID",
			rule: "entries and DanmEps carry the Node's UID",
			file: gcDir + "collector.go",
			old:  "ok && h.UID == uid {", new: "ok && h.UID+uid != \"\" {",
			test: "^TestEvict",
		},
		{
			name:        "GoneFreesNoDanmEps",
			rule:        "the controller frees the unused holds of a deleted Node",
			file:        statusDir + "draft.go",
			old:         "\tfor a := range d.owners.Others {\n\t\tpool.MarkAllocated(a)\n\t}\n",
			testPackage: "ipam/gc", test: "^TestEvict",
		},
	}
}
