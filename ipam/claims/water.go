// SPDX-License-Identifier: Apache-2.0

package claims

import "time"

// Marks of the water, in addresses and shares.
const (
	// leastHold is what a network in use keeps at least, if anything.
	leastHold = 4
	// scarce is how many free addresses there must be for each node.
	scarce = 8
	// share is the part of its fair share of the free addresses that a node
	// keeps at most, as 1/share: all nodes together leave three quarters.
	share = 4
	// ebbs is into how many steps Config.Rest is divided: with each step without
	// a claim the hold is halved, after the last it goes.
	ebbs = 5
)

// water says how many addresses of one network this node keeps ready: as many as
// were claimed of late, twice over, and less with time.
type water struct {
	// peak is the high water when somebody claimed last.
	peak int
	last time.Time
	// claimed counts the claims since then. They come one at a time, each of them
	// a look at the water, so only together do they show how many the node needs.
	claimed int
	since   time.Time
}

// level is the high water now. rest is how long an unused hold is kept.
func (w water) level(now time.Time, rest time.Duration) int {
	step := int(now.Sub(w.last) * ebbs / max(rest, 1))
	if w.peak == 0 || step >= ebbs {
		return 0
	}
	return max(w.peak>>max(step, 0), leastHold)
}

// after returns the water after some claims. Those of two steps of the ebb count as
// one demand: what the hold served is counted up to a step later.
func (w water) after(claims int, now time.Time, rest time.Duration) water {
	if claims == 0 {
		return w
	}
	peak := w.level(now, rest)
	if now.Sub(w.since) >= 2*rest/ebbs {
		w.claimed, w.since = 0, now
	}
	w.claimed += claims
	w.peak, w.last = max(2*w.claimed, peak, leastHold), now
	return w
}

// allowance is how many addresses one node may keep of a pool, its own held ones
// among the free: none when there are fewer than 8 for each node, so that a full
// pool has no address that waits for a Pod elsewhere.
func allowance(free int64, nodes int) int {
	n := int64(max(nodes, 1))
	if free < scarce*n {
		return 0
	}
	return int(min(free/(share*n), 1<<20))
}

// low is how many addresses are few, of a mark.
func low(mark int) int { return mark / 4 }
