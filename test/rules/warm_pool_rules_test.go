// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// warmPoolRules are about what a node keeps ready, and what it gives back when.
func warmPoolRules() []mutation {
	return []mutation{
		{
			name: "HoldNeedsNoRequest",
			rule: "the hold is taken from lock-free, with no API call",
			file: allocatorDir + "allocator.go",
			old:  "if a4, a6, ok := n.takeWarm(net, v4, v6); ok {", new: "if a4, a6, ok := n.takeWarm(net, v4, v6); ok && a.closing.Load() {",
			test: "^TestHoldServesWithoutAWrite$",
		},
		{
			name: "NoneFromAScarcePool",
			rule: "none kept where a pool has fewer than 8 free addresses per node",
			file: allocatorDir + "warmtarget.go",
			old:  "\tif free < scarce*n {\n\t\treturn 0\n\t}\n",
			test: "^TestScarcePoolIsNotHeld$",
		},
		{
			name: "PressureIsRaised",
			rule: "who finds a pool exhausted while others hold raises status.ipam.reclaimRequestTime",
			file: allocatorDir + "grant.go",
			old:  "\t\tp.requestReclaim()\n",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "PressureGivesBack",
			rule: "holders look at the object at most every 5 s while its metadata moves, and give back",
			file: allocatorDir + "warmtarget.go",
			old:  "case p.obj.Deleting, p.obj.Invalid != nil, p.reclaim, p.closing", new: "case p.obj.Deleting, p.obj.Invalid != nil, p.closing",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "HolderLooks",
			rule: "holders look at the object at most every 5 s while its metadata moves",
			file: allocatorDir + "network.go",
			old:  "\tn.objectMoved = true\n",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "HolderLooksNotTooOften",
			rule: "at most every 5 s",
			file: allocatorDir + "network.go",
			old:  "return n.objectMoved && now.Sub(n.readAt) >= rereadEvery", new: "return n.objectMoved",
			test: "^TestHolderLooksNotTooOften$",
		},
		{
			name: "ExhaustedWaitsForOthers",
			rule: "no allocation fails for good while an address of the pool is held unused",
			file: allocatorDir + "grant.go",
			old:  "p.now.Sub(c.since) < p.reclaimTimeout {", new: "p.now.Sub(c.since) < 0 {",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "RestIsCutShort",
			rule: "a pool of exactly as many addresses as Pods serves them all",
			file: allocatorDir + "plan.go",
			old:  "missing := -p.freeOf(f)", new: "missing := int64(0)",
			test: "^TestRestIsCutShort$",
		},
		{
			name: "IdleHoldGoesBack",
			rule: "low and high water, adaptive: a hold that nobody uses goes back",
			file: allocatorDir + "warmtarget.go",
			old:  "if d.peak == 0 || step >= decaySteps {", new: "if d.peak == 0 {",
			test: "^TestIdleHoldGoesBack$",
		},
		{
			name: "BurstIsOneDemand",
			rule: "low and high water, adaptive: single claims add up",
			file: allocatorDir + "warmtarget.go",
			old:  "d.claimed += claims", new: "d.claimed = claims",
			test: "^TestHoldFollowsABurst$",
		},
		{
			name: "HoldIsFilledAgain",
			rule: "low and high water, adaptive: what was served from the hold is filled up",
			file: allocatorDir + "network.go",
			old:  " || n.needsRefill(now) {", new: " {",
			test: "^TestHoldFollowsABurst$",
		},
		{
			name: "CoolsDown",
			rule: "a released one also cools down (default 10 s) on its node",
			file: allocatorDir + "network.go",
			old:  "return time.Now().Add(n.a.cfg.Cooldown)", new: "return time.Time{}",
			test: "^TestReleasedAddressRests$",
		},
		{
			name: "LeftoverCoolsDown",
			rule: "a released one also cools down, across a restart",
			file: allocatorDir + "plan.go",
			old:  "if p.first && p.cooldown > 0 {", new: "if false {",
			test: "^TestRebuiltHold$",
		},
		{
			name: "StaticIsNeverHeld",
			rule: "static addresses are freed at once and never held",
			file: allocatorDir + "localstate.go",
			old:  "if until.IsZero() || u.static || !l", new: "if until.IsZero() || !l",
			test: "^TestStaticIsFreedAtOnce$",
		},
		{
			name: "StaticIsKnownAfterARestart",
			rule: "static addresses are freed at once and never held",
			file: allocatorDir + "localstate.go",
			old:  "owner: u.Owner, static: a.Is4() && u.Static4 || a.Is6() && u.Static6}", new: "owner: u.Owner}",
			test: "^TestStaticIsFreedAtOnce$",
		},
		{
			name: "DeletionTakesNoClaims",
			rule: "a network being deleted takes no new ADD",
			file: allocatorDir + "grant.go",
			old:  "case p.obj.Deleting:", new: "case false:",
			test: "^TestClaimRefusals$",
		},
		{
			name: "DeletionClosesTheHold",
			rule: "a network being deleted takes no new ADD",
			file: allocatorDir + "warmtarget.go",
			old:  "case p.obj.Deleting, p.obj.Invalid", new: "case p.obj.Invalid",
			test: "^TestDeletionClosesTheHold$",
		},
		{
			name: "FinalizerStaysForDanmEps",
			rule: "finalizer on the network, off when nobody holds and no DanmEp is left",
			file: gcDir + "collector.go",
			old:  "return e.Of(key.UID) }) {", new: "return e.Of(key.UID) && false }) {",
			test: "^TestDeletionWaitsForUsers$",
		},
		{
			name: "FinalizerStaysForEntries",
			rule: "finalizer on the network, off when nobody holds and no DanmEp is left",
			file: gcDir + "collector.go",
			old:  "case !obj.Deleting || obj.InUse():", new: "case !obj.Deleting:",
			test: "^TestDeletionWaitsForUsers$",
		},
		{
			name: "FinalizerStaysOnWhatIsOlder",
			rule: "an object older than what the controller has seen gives out nothing",
			file: gcDir + "collector.go",
			old:  "case status.IsOlder(obj.ResourceVersion, newest): // it", new: "case status.IsOlder(obj.ResourceVersion, newest) && false: // it",
			test: "^TestDeletionOfAnOlderObject$",
		},
	}
}
