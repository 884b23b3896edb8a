// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// warmPoolRules are about what a node keeps ready, and what it gives back when.
func warmPoolRules() []mutation {
	return []mutation{
		{
			name: "HoldNeedsNoRequest",
			rule: "the hold is taken from lock-free, with no API call",
			file: claimsDir + "claim.go",
			old:  "if a4, a6, ok := d.fromShelf(net, v4, v6); ok {", new: "if a4, a6, ok := d.fromShelf(net, v4, v6); ok && a.closing.Load() {",
			test: "^TestHoldServesWithoutAWrite$",
		},
		{
			name: "NoneFromAScarcePool",
			rule: "none kept where a pool has fewer than 8 free addresses per node",
			file: claimsDir + "water.go",
			old:  "\tif free < scarce*n {\n\t\treturn 0\n\t}\n",
			test: "^TestScarcePoolIsNotHeld$",
		},
		{
			name: "PressureIsRaised",
			rule: "who finds a pool exhausted while others hold raises status.ipam.reclaimRequestTime",
			file: claimsDir + "grant.go",
			old:  "\t\tp.press()\n",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "PressureGivesBack",
			rule: "holders look at the object at most every 5 s while its metadata moves, and give back",
			file: claimsDir + "watermark.go",
			old:  "case p.obj.Deleting, p.obj.Invalid != nil, pressed, d.a", new: "case p.obj.Deleting, p.obj.Invalid != nil, pressed && false, d.a",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "HolderLooks",
			rule: "holders look at the object at most every 5 s while its metadata moves",
			file: claimsDir + "look.go",
			old:  "\td.look = true\n",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "HolderLooksNotTooOften",
			rule: "at most every 5 s",
			file: claimsDir + "look.go",
			old:  "return d.look && now.Sub(d.looked) >= lookEvery", new: "return d.look",
			test: "^TestHolderLooksNotTooOften$",
		},
		{
			name: "ExhaustedWaitsForOthers",
			rule: "no allocation fails for good while an address of the pool is held unused",
			file: claimsDir + "grant.go",
			old:  "p.now.Sub(c.since) < p.cfg.Patience {", new: "p.now.Sub(c.since) < 0 {",
			test: "^TestPressureGivesBack$",
		},
		{
			name: "RestIsCutShort",
			rule: "a pool of exactly as many addresses as Pods serves them all",
			file: claimsDir + "stock.go",
			old:  "\t\t\tp.stopRest(-p.freeOf(f), f.gives)\n",
			test: "^TestRestIsCutShort$",
		},
		{
			name: "IdleHoldGoesBack",
			rule: "low and high water, adaptive: a hold that nobody uses goes back",
			file: claimsDir + "water.go",
			old:  "if w.peak == 0 || step >= ebbs {", new: "if w.peak == 0 {",
			test: "^TestIdleHoldGoesBack$",
		},
		{
			name: "BurstIsOneDemand",
			rule: "low and high water, adaptive: single claims add up",
			file: claimsDir + "water.go",
			old:  "w.claimed += claims", new: "w.claimed = claims",
			test: "^TestHoldFollowsABurst$",
		},
		{
			name: "HoldIsFilledAgain",
			rule: "low and high water, adaptive: what was served from the hold is filled up",
			file: claimsDir + "tend.go",
			old:  " || d.lacks(now) {", new: " {",
			test: "^TestHoldFollowsABurst$",
		},
		{
			name: "CoolsDown",
			rule: "a released one also cools down (default 10 s) on its node",
			file: claimsDir + "claim.go",
			old:  "return time.Now().Add(d.a.cfg.Cool)", new: "return time.Time{}",
			test: "^TestReleasedAddressRests$",
		},
		{
			name: "LeftoverCoolsDown",
			rule: "a released one also cools down, across a restart",
			file: claimsDir + "restock.go",
			old:  "if p.first && p.cfg.Cool > 0 {", new: "if false {",
			test: "^TestRebuiltHold$",
		},
		{
			name: "StaticIsNeverHeld",
			rule: "static addresses are freed at once and never held",
			file: claimsDir + "steps.go",
			old:  "if until.IsZero() || u.static || !l", new: "if until.IsZero() || !l",
			test: "^TestStaticIsFreedAtOnce$",
		},
		{
			name: "StaticIsKnownAfterARestart",
			rule: "static addresses are freed at once and never held",
			file: claimsDir + "steps.go",
			old:  "owner: u.Owner, static: u.static(a)}", new: "owner: u.Owner}",
			test: "^TestStaticIsFreedAtOnce$",
		},
		{
			name: "DeletionTakesNoClaims",
			rule: "a network being deleted takes no new ADD",
			file: claimsDir + "grant.go",
			old:  "case p.obj.Deleting:", new: "case false:",
			test: "^TestClaimRefusals$",
		},
		{
			name: "DeletionClosesTheHold",
			rule: "a network being deleted takes no new ADD",
			file: claimsDir + "watermark.go",
			old:  "case p.obj.Deleting, p.obj.Invalid", new: "case p.obj.Invalid",
			test: "^TestDeletionClosesTheHold$",
		},
		{
			name: "FinalizerStaysForDanmEps",
			rule: "finalizer on the network, off when nobody holds and no DanmEp is left",
			file: claimsDir + "steward.go",
			old:  "return e.of(key.UID) }) {", new: "return e.of(key.UID) && false }) {",
			test: "^TestDeletionWaitsForUsers$",
		},
		{
			name: "FinalizerStaysForEntries",
			rule: "finalizer on the network, off when nobody holds and no DanmEp is left",
			file: claimsDir + "steward.go",
			old:  "case !obj.Deleting || obj.used():", new: "case !obj.Deleting:",
			test: "^TestDeletionWaitsForUsers$",
		},
		{
			name: "FinalizerStaysOnWhatIsOlder",
			rule: "an object older than what the controller has seen gives out nothing",
			file: claimsDir + "steward.go",
			old:  "case older(obj.ResourceVersion, newest): // what", new: "case older(obj.ResourceVersion, newest) && false: // what",
			test: "^TestDeletionOfAnOlderObject$",
		},
	}
}
