// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// rollbackRules are about what an older state brings back beside what it lost.
func rollbackRules() []mutation {
	return []mutation{
		{
			name: "DeadDanmEpsAreAwaited",
			rule: "until every Node has re-asserted its live endpoints, and only these",
			file: allocatorDir + "plan.go",
			old:  "\tif p.deadDanmEps {\n", new: "\tif false {\n",
			test: "^TestDeadDanmEpsAreAwaited$",
		},
		{
			name: "DeadDanmEpsAreLookedFor",
			rule: "every Node re-asserts: one that waits looks again by itself",
			file: allocatorDir + "commit.go",
			old:  "\t\tn.tendIn(deadDanmEpsEvery)\n",
			test: "^TestDeadDanmEpsAreAwaited$",
		},
		{
			name: "OlderEntryTakesNothing",
			rule: "no address is on two live interfaces: not after a restored etcd",
			file: allocatorDir + "plan.go",
			old:  "if p.draft.IsForeign(a) && !p.rollback.reassert {", new: "if p.draft.IsForeign(a) {",
			test: "^TestOlderEntryTakesNothingAway$",
		},
		{
			name: "OlderDanmEpTakesNothing",
			rule: "no address is on two live interfaces: not after a restored etcd",
			file: allocatorDir + "localstate.go",
			old:  "o.HasOther(a) && !recovering:", new: "o.HasOther(a):",
			test: "^TestOlderDanmEpTakesNothingAway$",
		},
		{
			name: "OlderReportsDoNotCount",
			rule: "until every Node has re-asserted its live endpoints: since this restore",
			file: allocatorDir + "rollback.go",
			old:  "begins := rec == nil || r.older && !rec.StartTime.After(l.recovery)", new: "begins := rec == nil",
			test: "^TestOlderReportsDoNotCount$",
		},
		{
			name: "AuditStartsTheRecovery",
			rule: "older state: nobody's write hides from the nodes that it is older",
			file: gcDir + "collector.go",
			old:  "\tif older {\n\t\tf =", new: "\tif false {\n\t\tf =",
			test: "^TestAuditOfAnOlderObject$",
		},
		{
			name: "WatchAheadOfARead",
			rule: "older state: a read is older only than what was known before it",
			file: allocatorDir + "commit.go",
			old:  "status.IsOlder(obj.ResourceVersion, newest)", new: "status.IsOlder(obj.ResourceVersion, max(newest, n.a.versions.Newest(n.key)))",
			test: "^TestWatchAheadOfARead$",
		},
		{
			name: "PublishedDuringTheList",
			rule: "older state: a DanmEp that is not in a list made before it is not lost",
			file: allocatorDir + "snapshot.go",
			old:  "s == published && o.publishedBefore[a] && ", new: "s == published && ",
			test: "^TestPublishedDuringTheList$",
		},
		{
			name: "OwnEntryTells",
			rule: "older state: an older copy over the object, by the node's own entry",
			file: allocatorDir + "rollback.go",
			old:  "case l.entry.changedByOther(&own, unreadable):", new: "case l.entry.changedByOther(&own, unreadable) && false:",
			test: "^TestOlderCopyInPlace$",
		},
		{
			name: "RecoveryIsJoined",
			rule: "older state: the reports of those count who found out before",
			file: allocatorDir + "rollback.go",
			old:  "r.older && !rec.StartTime.After(l.recovery)", new: "r.older",
			test: "^TestRecoveryIsJoined$",
		},
		{
			name: "CutOffDoesNotGuess",
			rule: "cut off: nothing is given out before it is known whether the node was evicted",
			file: allocatorDir + "rollback.go",
			old:  "if cfg.Usable() || cfg.NodeGone()", new: "if cfg.Usable() || true || cfg.NodeGone()",
			test: "^TestCutOffDoesNotGuess$",
		},
	}
}
