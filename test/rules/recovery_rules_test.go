// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// recoveryRules are about state that was lost, or is older than it was.
func recoveryRules() []mutation {
	return []mutation{
		{
			name: "AbsentIsUnknown",
			rule: "status.ipam absent means unknown, not empty: its first writer builds it from a list of DanmEps",
			file: claimsDir + "family.go",
			old:  "\treturn fill(f.pool)\n", new: "\treturn nil\n",
			test: "^TestUnknownStateIsRebuiltBeforeAClaim$",
		},
		{
			name: "AbsentIsRecovered",
			rule: "status.ipam absent means unknown: nothing is claimed before",
			file: claimsDir + "recover.go",
			old:  "case p.blank:", new: "case false:",
			test: "^TestDroppedStatusIsNotEmpty$",
		},
		{
			name: "SmallerSeqIsOlder",
			rule: "a node that reads a smaller seq than it journalled reports a rollback",
			file: claimsDir + "recover.go",
			old:  "p.before < p.book.remembered", new: "false",
			test: "^TestSmallerSeqAfterARestart$",
		},
		{
			name: "MissingDanmEpIsOlder",
			rule: "a node that misses a DanmEp that it wrote reports a rollback",
			file: claimsDir + "recover.go",
			old:  "case p.book.missing:", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "SmallerVersionIsOlder",
			rule: "older state: a smaller resourceVersion than was seen before",
			file: claimsDir + "recover.go",
			old:  "case p.older:", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "MissingIsCoveredAgain",
			rule: "a set bit is always covered: by the entry again, when its DanmEp was lost",
			file: claimsDir + "verify.go",
			old:  "\t\tcase o.gone(a, u.state):\n\t\t\tl.set(a, claimed)\n",
			test: "^TestSettle$",
		},
		{
			name: "RecoveryRefusesClaims",
			rule: "claims answer error 11 until every Node has re-asserted its live endpoints",
			file: claimsDir + "grant.go",
			old:  "case p.recovering():", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "RecoveryClosesTheHold",
			rule: "claims answer error 11 until every Node has re-asserted its live endpoints",
			file: claimsDir + "watermark.go",
			old:  "\t\tp.recovering(), p.v4", new: "\t\tp.v4",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "RecoveryAwaitsAllNodes",
			rule: "until every Node has re-asserted; skip leaves out one that is down",
			file: claimsDir + "steward.go",
			old:  "if len(awaited) == 0 {", new: "if len(awaited) < len(nodes) {",
			test: "^TestRecover",
		},
		{
			name: "RollbackStopsClaims",
			rule: "claims answer error 11 from the report of a rollback on, before the controller has seen it",
			file: claimsDir + "recover.go",
			old:  "!deferred && ofNode(name) {\n\t\t\treturn true", new: "!deferred && ofNode(name) {\n\t\t\treturn false",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "OwnRollbackStopsClaims",
			rule: "a deferred node gives out nothing itself: what it knows of may be in use",
			file: claimsDir + "recover.go",
			old:  "return p.entry.rollback != nil || recovering(p.next.IPAM)", new: "return recovering(p.next.IPAM)",
			test: "^TestReportsOfOneNodeAreBounded$",
		},
		{
			name: "RecoveriesAreTheControllers",
			rule: "a node reports to a recovery that the controller has begun since its report, to no older one",
			file: claimsDir + "recover.go",
			old:  "p.answers = rec != nil && !unanswered(p.entry.rollback, rec)", new: "p.answers = rec != nil",
			test: "^TestOlderReportsDoNotCount$",
		},
		{
			name: "ReportsAreBounded",
			rule: "three recoveries of a network in ten minutes begin with the reports of one node",
			file: claimsDir + "limit.go",
			old:  "mostRecoveries   = 3", new: "mostRecoveries   = 1 << 20",
			test: "^TestReportsOfOneNodeAreBounded$",
		},
		{
			name: "DeferralsOutliveTheLeader",
			rule: "three recoveries of a network in ten minutes, whichever controller leads",
			file: claimsDir + "steward.go",
			old:  "if _, ok := deferred[name]; ok || ", new: "if _, ok := deferred[name]; ok && false || ",
			test: "^TestDeferralsOutliveTheLeader$",
		},
		{
			name: "LeftOutReportsEnd",
			rule: "skip leaves out a node that is down, and what it has reported",
			file: claimsDir + "steward.go",
			old:  "\t\t\th.Rollback = nil\n",
			test: "^TestReportsOfThoseLeftOutEnd$",
		},
		{
			name: "OtherUIDTakesNothing",
			rule: "everything carries the network's UID; a release to another UID is a no-op",
			file: claimsDir + "read.go",
			old:  "case obj.UID != d.key.UID:", new: "case false:",
			test: "^TestFormerNetworkIsLeftAlone$",
		},
		{
			name: "FormerDanmEpsCoverNothing",
			rule: "everything carries the network's UID",
			file: claimsDir + "verify.go",
			old:  "return e.NetworkUID == \"\" || e.NetworkUID == uid", new: "return true",
			test: "^TestUnknownStateIsRebuiltBeforeAClaim$",
		},
		{
			name: "AuditOfThatUID",
			rule: "everything carries the network's UID",
			file: claimsDir + "steward_change.go",
			old:  "if obj.UID != key.UID {", new: "if false {",
			test: "^TestAudit",
		},
	}
}
