// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// The warm target, in addresses and shares.
const (
	// minWarm is how many addresses a network in use has at least, if any.
	minWarm = 4
	// scarce is how many free addresses there must be for each node.
	scarce = 8
	// share is the part of its fair share of the free addresses that a node
	// pre-allocates at most, as 1/share: all nodes together leave three quarters.
	share = 4
	// decaySteps is into how many steps Config.WarmPoolIdleTimeout is divided: with each step
	// without a claim the target is halved, after the last it is 0.
	decaySteps = 5
)

// demand is how many addresses of one network were claimed of late. The warm target is twice
// that, and less with time.
type demand struct {
	// peak is the target when the last claim came.
	peak int
	last time.Time
	// claimed counts the claims since then. They come one at a time, and each is seen alone,
	// so only together do they show how many addresses the node needs.
	claimed int
	since   time.Time
}

// target is the warm target now. idleTimeout is how long an unused warm pool is kept.
func (d demand) target(now time.Time, idleTimeout time.Duration) int {
	step := int(now.Sub(d.last) * decaySteps / max(idleTimeout, 1))
	if d.peak == 0 || step >= decaySteps {
		return 0
	}
	return max(d.peak>>max(step, 0), minWarm)
}

// after returns the demand after some claims. Those of two decay steps count as one demand:
// what the warm pool served is counted up to a step later.
func (d demand) after(claims int, now time.Time, idleTimeout time.Duration) demand {
	if claims == 0 {
		return d
	}
	peak := d.target(now, idleTimeout)
	if now.Sub(d.since) >= 2*idleTimeout/decaySteps {
		d.claimed, d.since = 0, now
	}
	d.claimed += claims
	d.peak, d.last = max(2*d.claimed, peak, minWarm), now
	return d
}

// sizeWarmPool decides how many addresses the node pre-allocates, and which have to leave the
// warm pool before the write that gives them back is sent: from then on, no claim gets one.
func (p *planner) sizeWarmPool() {
	p.target, p.keepWarm = p.warmTarget()
	if !p.warm.open {
		return
	}
	if !p.keepWarm || p.warm.generation != p.obj.Generation {
		p.withdraw.close = true
		return
	}
	for _, a := range slices.Concat(p.warm.v4, p.warm.v6) {
		// Reserved by now, or lost by an older state of the object.
		if !p.draft.Family(a).HandsOut(a) || !p.draft.Entry.Contains(a) && p.local.uses[a].state == warm {
			p.withdraw.addrs = append(p.withdraw.addrs, a)
		}
	}
	if p.withdraw.limit = 2 * p.target; max(len(p.warm.v4), len(p.warm.v6)) > p.withdraw.limit {
		p.withdraw.shrink = true
	}
}

// warmTarget is how many addresses of each family to pre-allocate, and whether there may be
// a warm pool at all: that of a network without addresses serves claims that need none.
func (p *planner) warmTarget() (target int, keep bool) {
	switch {
	case p.obj.Deleting, p.obj.Invalid != nil, p.reclaim, p.closing, p.maxWarm == 0,
		p.draft.Recovering(), p.draft.V4.Former || p.draft.V6.Former:
		return 0, false
	}
	claims := p.takes
	for _, c := range p.claims {
		if c.isDynamic() {
			claims++
		}
	}
	target = p.demand.after(claims, p.now, p.idleTimeout).target(p.now, p.idleTimeout)
	if p.first && target == 0 {
		target = p.leftovers()
	}
	p.allowed = p.maxWarm
	nodes := max(p.nodeCount, len(p.draft.Next.IPAM.Held))
	for _, f := range p.draft.Families() {
		if f.Pool != nil {
			p.allowed = min(p.allowed, allowance(p.freeOf(f), nodes))
		}
	}
	target = min(target, p.allowed)
	return target, target > 0
}

// leftovers counts the addresses that a former incarnation left in the entry and that have
// no use.
func (p *planner) leftovers() int {
	n := 0
	for _, a := range p.draft.Entry.Addrs() {
		if !p.isKnown(a) && !p.danmEps.live[a] {
			n++
		}
	}
	return n
}

// allowance is how many addresses one node may pre-allocate of a pool, with its own warm ones
// among the free: none when there are fewer than 8 for each node, so that no address of a
// full pool waits for a Pod elsewhere.
func allowance(free int64, nodes int) int {
	n := int64(max(nodes, 1))
	if free < scarce*n {
		return 0
	}
	return int(min(free/(share*n), 1<<20))
}

// freeOf counts the free addresses of a pool, with those of the warm pool, also as it was
// before the withdrawal for this plan.
func (p *planner) freeOf(f *status.Family) int64 {
	free := f.Pool.Capacity() - f.Pool.AllocatedDynamic() - int64(len(p.claims))
	of := f.Pool.CIDR().Addr()
	for _, a := range p.withdrawn {
		if a.Is4() == of.Is4() {
			free++
		}
	}
	return free + int64(len(p.warm.of(of)))
}

// stocked is how many addresses of that one's family are in the warm pool or on their way.
func (p *planner) stocked(a netip.Addr) int {
	n := len(p.warm.of(a))
	for _, b := range slices.Concat(p.stock, p.cool) {
		if a.Is4() == b.Is4() {
			n++
		}
	}
	return n
}

// refillWarmPool claims what the warm pool lacks, once half of the target is used up.
func (p *planner) refillWarmPool() {
	if p.target == 0 || p.starved {
		return
	}
	for _, f := range p.draft.Families() {
		if f.Pool == nil {
			continue
		}
		there := p.stocked(f.Pool.CIDR().Addr())
		if there > p.target/2 {
			continue
		}
		for _, a := range f.Pool.AllocateN(nil, p.target-there) {
			p.draft.Entry.Of(a).Add(a)
			p.stock = append(p.stock, a)
		}
	}
}
