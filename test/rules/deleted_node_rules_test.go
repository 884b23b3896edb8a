// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// deletedNodeRules are about nodes that are cut off, and those that are gone for good.
func deletedNodeRules() []mutation {
	return []mutation{
		{
			name: "CutOffAfterTenMinutes",
			rule: "a daemon without a successful API exchange for 10 minutes hands out nothing from holds",
			file: "daemon/internal/nodestate/nodestate.go",
			old:  "return seen != nil && n.clocks.age(seen) < nodeFreshFor", new: "return seen != nil",
			test: "^TestUsableWhileTheNodeIsKnownToBeThere$",
		},
		{
			name: "TimeAsleepCounts",
			rule: "for 10 minutes (CLOCK_BOOTTIME)",
			file: "daemon/internal/nodestate/clock.go",
			old:  "-clockTolerance < slept && slept < clockTolerance {", new: "slept < unknownAge {",
			test: "^(TestAgeOfAMoment|TestUsableWhileTheNodeIsKnownToBeThere)$",
		},
		{
			name: "GoneForFifteenMinutes",
			rule: "the controller frees the unused warm addresses of a deleted Node 15 minutes later",
			file: "controller/internal/addresses/sweeper.go",
			old:  "if now.Sub(a[l]) >= grace {", new: "if true {",
			test: "^TestGoneSince$",
		},
		{
			name: "GoneAtEachLook",
			rule: "deleting a Node says that the machine is off: one that came back was not",
			file: "controller/internal/addresses/sweeper.go",
			old:  "return !suspects[l] })", new: "return false })",
			test: "^TestGoneSince$",
		},
		{
			name: "GoneIsThatLife",
			rule: "entries and DanmEps carry the Node's UID",
			file: "controller/internal/addresses/nodes.go",
			old:  "return ok && known.uid == l.uid", new: "return ok && known.uid+l.uid != \"\"",
			test: "^TestNodeIncarnations$",
		},
		{
			name: "GoneIsConfirmed",
			rule: "deleting a Node is the only exception to never twice: the API server has the last word",
			file: "controller/internal/addresses/cluster_reader.go",
			old:  "if err != nil || string(node.UID) != l.uid {", new: "if true {",
			test: "^TestReconcileNetwork$",
		},
		{
			name: "QuarantineIsNoNode",
			rule: "quarantined addresses have an entry !quarantine",
			file: "controller/internal/addresses/nodes.go",
			old:  "l.name != \"\" && !strings.HasPrefix(l.name, \"!\")", new: "strings.TrimPrefix(l.name, \"!\") != \"\"",
			test: "^TestNodeIncarnations$",
		},
		{
			name: "NothingIsFreedInARecovery",
			rule: "until every Node has re-asserted its live endpoints, nobody can tell who covers a bit",
			file: "controller/internal/addresses/bitmap_audit.go",
			old:  "\tif r.Recovering() {\n\t\treturn",
			new:  "\tif false {\n\t\treturn",
			test: "^TestReconcileNetwork$",
		},
		{
			name: "RebuildWaitsForTheRecovery",
			rule: "rebuilt from entries and DanmEps: not before these are known again",
			file: "controller/internal/addresses/bitmap_audit.go",
			old:  "if !asked || r.Recovering() {", new: "if !asked {",
			test: "^TestReconcileNetwork$",
		},
	}
}
