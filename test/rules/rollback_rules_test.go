// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// rollbackRules are about what an older state brings back beside what it lost.
func rollbackRules() []mutation {
	return []mutation{
		{
			name: "DeadDanmEpsAreAwaited",
			rule: "until every Node has re-asserted its live endpoints, and only these",
			file: claimsDir + "recover.go",
			old:  "\tif p.dead {\n", new: "\tif false {\n",
			test: "^TestDeadDanmEpsAreAwaited$",
		},
		{
			name: "DeadDanmEpsAreLookedFor",
			rule: "every Node re-asserts: one that waits looks again by itself",
			file: claimsDir + "apply.go",
			old:  "\t\td.later(deadEvery)\n",
			test: "^TestDeadDanmEpsAreAwaited$",
		},
		{
			name: "OlderEntryTakesNothing",
			rule: "no address is on two live interfaces: not after a restored etcd",
			file: claimsDir + "cover.go",
			old:  "if p.foreign(a) && !p.reassert {", new: "if p.foreign(a) {",
			test: "^TestOlderEntryTakesNothingAway$",
		},
		{
			name: "OlderDanmEpTakesNothing",
			rule: "no address is on two live interfaces: not after a restored etcd",
			file: claimsDir + "verify.go",
			old:  "in(o.theirs, a) && !recovering:", new: "in(o.theirs, a):",
			test: "^TestOlderDanmEpTakesNothingAway$",
		},
		{
			name: "OlderReportsDoNotCount",
			rule: "until every Node has re-asserted its live endpoints: since this restore",
			file: claimsDir + "recover.go",
			old:  "return rec == nil || p.older && !rec.StartTime.After(p.book.recovery)", new: "return rec == nil",
			test: "^TestOlderReportsDoNotCount$",
		},
		{
			name: "AuditStartsTheRecovery",
			rule: "older state: nobody's write hides from the nodes that it is older",
			file: claimsDir + "steward_change.go",
			old:  "\tif back {\n\t\tf =", new: "\tif false {\n\t\tf =",
			test: "^TestAuditOfAnOlderObject$",
		},
		{
			name: "WatchAheadOfARead",
			rule: "older state: a read is older only than what was known before it",
			file: claimsDir + "read.go",
			old:  "older(obj.ResourceVersion, newest)", new: "older(obj.ResourceVersion, max(newest, d.a.versions.newest(d.key)))",
			test: "^TestWatchAheadOfARead$",
		},
		{
			name: "PublishedDuringTheList",
			rule: "older state: a DanmEp that is not in a list made before it is not lost",
			file: claimsDir + "verify.go",
			old:  "s == published && o.asked[a] && ", new: "s == published && ",
			test: "^TestPublishedDuringTheList$",
		},
		{
			name: "OwnEntryTells",
			rule: "older state: an older copy over the object, by the node's own entry",
			file: claimsDir + "recover.go",
			old:  "case p.foreignHand():", new: "case p.foreignHand() && false:",
			test: "^TestOlderCopyInPlace$",
		},
		{
			name: "RecoveryIsJoined",
			rule: "older state: the reports of those count who found out before",
			file: claimsDir + "recover.go",
			old:  "p.older && !rec.StartTime.After(p.book.recovery)", new: "p.older",
			test: "^TestRecoveryIsJoined$",
		},
		{
			name: "CutOffDoesNotGuess",
			rule: "cut off: nothing is given out before it is known whether the node was evicted",
			file: claimsDir + "recover.go",
			old:  "p.desk == nil || p.cfg.Usable() ||", new: "p.desk == nil || p.cfg.Usable() || true ||",
			test: "^TestCutOffDoesNotGuess$",
		},
	}
}
