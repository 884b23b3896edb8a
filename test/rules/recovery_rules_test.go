// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// recoveryRules are about state that was lost, or is older than it was.
func recoveryRules() []row {
	return []row{
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
			rule: "a node that reads a smaller seq than it journalled sets status.ipam.recovering",
			file: claimsDir + "recover.go",
			old:  "p.before < p.book.remembered", new: "false",
			test: "^TestSmallerSeqAfterARestart$",
		},
		{
			name: "MissingDanmEpIsOlder",
			rule: "a node that misses a DanmEp that it wrote sets status.ipam.recovering",
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
			old:  "case p.next.IPAM.Recovering != nil:", new: "case false:",
			test: "^TestOlderStateIsRecovered$",
		},
		{
			name: "RecoveryClosesTheHold",
			rule: "claims answer error 11 until every Node has re-asserted its live endpoints",
			file: claimsDir + "watermark.go",
			old:  "\t\tp.next.IPAM.Recovering != nil, p.v4", new: "\t\tp.v4",
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
