// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// olderRules are about what an older state brings back beside what it lost.
func olderRules() []row {
	return []row{
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
			name: "OlderEntryFreesNothing",
			rule: "a set bit is always covered: what somebody else covers keeps its bit",
			file: claimsDir + "cover.go",
			old:  "if !p.claimedElsewhere(a) {", new: "if true {",
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
			old:  "if p.next.IPAM.Recovering == nil || p.older {", new: "if p.next.IPAM.Recovering == nil {",
			test: "^TestOlderReportsDoNotCount$",
		},
		{
			name: "OlderThanTheFirstUse",
			rule: "status.ipam absent means unknown, not empty",
			file: claimsDir + "attempt.go",
			old:  "obj.answers() || d.doubts(obj) {", new: "obj.answers() {",
			test: "^TestOlderThanTheFirstUse$",
		},
		{
			name: "AuditStartsTheRecovery",
			rule: "older state: nobody's write hides from the nodes that it is older",
			file: claimsDir + "steward.go",
			old:  "\tif older {\n\t\tf =", new: "\tif false {\n\t\tf =",
			test: "^TestAuditOfAnOlderObject$",
		},
	}
}
