// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// recoveryRules are about state that was lost, or is older than it was.
func recoveryRules() []mutation {
	return []mutation{
		{
			name: "AbsentIsUnknown",
			rule: "status.ipam absent means unknown, not empty: its first writer builds it from a list of DanmEps",
			file: statusDir + "family.go",
			old:  "\treturn fill(f.Pool)\n", new: "\treturn nil\n",
			testPackage: "ipam/allocator", test: "^TestUnknownStateIsRebuiltBeforeAClaim$",
		},
		{
			name: "AbsentIsRecovered",
			rule: "status.ipam absent means unknown: nothing is claimed before",
			file: allocatorDir + "rollback.go",
			old:  "case statusMissing:", new: "case statusMissing && false:",
			test: "^TestDroppedStatusIsNotEmpty$",
		},
		{
			name: "FinalizerOfOthersComesWithStatus",
			rule: "the finalizer for DANM's DanmEps does not look like a dropped status, for which claims wait",
			file: gcDir + "collector.go",
			old:  "\tif obj.IPAM == nil {\n\t\tnext := *obj\n", new: "\tif obj == nil {\n\t\tnext := *obj\n",
			test: "^TestFinalizerForOtherDanmEps$",
		},
		{
			name: "FinalizerOfOthersHidesNoRollback",
			rule: "older state: no write hides it from the nodes",
			file: gcDir + "collector.go",
			old:  "case status.IsOlder(obj.ResourceVersion, newest): // a write", new: "case newest == 1: // a write",
			test: "^TestNoFinalizerForAnOlderObject$",
		},
		{
			name: "SmallerSeqIsOlder",
			rule: "a node that reads a smaller seq than it journalled reports a rollback",
			file: allocatorDir + "rollback.go",
			old:  "own.Seq < l.entry.journalled", new: "false",
			test: "^TestSmallerSeqAfterARestart$",
		},
		{
			name: "MissingDanmEpIsOlder",
			rule: "a node that misses a DanmEp that it wrote reports a rollback",
			file: allocatorDir + "rollback.go",
			old:  "case l.danmEpMissing:", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "SmallerVersionIsOlder",
			rule: "older state: a smaller resourceVersion than was seen before",
			file: allocatorDir + "rollback.go",
			old:  "case r.older:", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "MissingIsCoveredAgain",
			rule: "a set bit is always covered: by the entry again, when its DanmEp was lost",
			file: allocatorDir + "localstate.go",
			old:  "\t\tcase o.lost(a, u.state):\n\t\t\tl.set(a, claimed)\n",
			test: "^TestSettle$",
		},
		{
			name: "RecoveryRefusesClaims",
			rule: "claims answer error 11 until every Node has re-asserted its live endpoints",
			file: allocatorDir + "grant.go",
			old:  "case p.draft.Recovering():", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "RecoveryClosesTheHold",
			rule: "claims answer error 11 until every Node has re-asserted its live endpoints",
			file: allocatorDir + "warmtarget.go",
			old:  "\t\tp.draft.Recovering(), p.draft.V4", new: "\t\tp.draft.V4",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "RecoveryAwaitsAllNodes",
			rule: "until every Node has re-asserted; skip leaves out one that is down",
			file: gcDir + "collector.go",
			old:  "if len(awaited) == 0 {", new: "if len(awaited) < len(nodes) {",
			test: "^TestRecover",
		},
		{
			name: "RollbackStopsClaims",
			rule: "claims answer error 11 from the report of a rollback on, before the controller has seen it",
			file: statusDir + "object.go",
			old:  "!deferred && IsNode(name) {\n\t\t\treturn true", new: "!deferred && IsNode(name) {\n\t\t\treturn false",
			testPackage: "ipam/allocator", test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "OwnRollbackStopsClaims",
			rule: "a deferred node gives out nothing itself: what it knows of may be in use",
			file: statusDir + "draft.go",
			old:  "return d.Entry.Rollback != nil || Recovering(d.Next.IPAM)", new: "return Recovering(d.Next.IPAM)",
			testPackage: "ipam/gc", test: "^TestReportsOfOneNodeAreBounded$",
		},
		{
			name: "RecoveriesAreTheControllers",
			rule: "a node reports to a recovery that the controller has begun since its report, to no older one",
			file: allocatorDir + "rollback.go",
			old:  "out.answers = rec != nil && !status.Unanswered(out.report, rec)", new: "out.answers = rec != nil",
			test: "^TestOlderReportsDoNotCount$",
		},
		{
			name: "ReportsAreBounded",
			rule: "three recoveries of a network in ten minutes begin with the reports of one node",
			file: gcDir + "recoverylimiter.go",
			old:  "maxRecoveries    = 3", new: "maxRecoveries    = 1 << 20",
			test: "^TestReportsOfOneNodeAreBounded$",
		},
		{
			name: "DeferralsOutliveTheLeader",
			rule: "three recoveries of a network in ten minutes, whichever controller leads",
			file: gcDir + "collector.go",
			old:  "if _, ok := deferred[name]; ok || ", new: "if _, ok := deferred[name]; ok && false || ",
			test: "^TestDeferralsOutliveTheLeader$",
		},
		{
			name: "LeftOutReportsEnd",
			rule: "skip leaves out a node that is down, and what it has reported",
			file: gcDir + "collector.go",
			old:  "\t\t\th.Rollback = nil\n",
			test: "^TestReportsOfThoseLeftOutEnd$",
		},
		{
			name: "OtherUIDTakesNothing",
			rule: "everything carries the network's UID; a release to another UID is a no-op",
			file: allocatorDir + "commit.go",
			old:  "case obj.UID != n.key.UID:", new: "case false:",
			test: "^TestFormerNetworkIsLeftAlone$",
		},
		{
			name: "FormerDanmEpsCoverNothing",
			rule: "everything carries the network's UID",
			file: statusDir + "object.go",
			old:  "return e.NetworkUID == \"\" || e.NetworkUID == uid", new: "return true",
			testPackage: "ipam/allocator", test: "^TestUnknownStateIsRebuiltBeforeAClaim$",
		},
		{
			name: "AuditOfThatUID",
			rule: "everything carries the network's UID",
			file: gcDir + "collector.go",
			old:  "if obj.UID != key.UID {", new: "if false {",
			test: "^TestAudit",
		},
	}
}
