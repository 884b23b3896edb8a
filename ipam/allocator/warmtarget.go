// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Parameters of the warm target.
const (
	// minWarm is the least warm target other than zero.
	minWarm = 4
	// scarce is the least number of free addresses per node for a warm pool.
	scarce = 8
	// share limits the addresses that a node pre-allocates to 1/share of its fair share of
	// the free addresses, so that all nodes together leave three quarters free.
	share = 4
	// decaySteps divides Config.WarmPoolIdleTimeout into steps. Each step without a claim
	// halves the target, and the last one sets it to 0.
	decaySteps = 5
)

// demand measures the recent claims in one network. The warm target is twice their number, and
// decays with time.
type demand struct {
	// peak is the target when the last claim came.
	peak int
	last time.Time
	// claimed counts the claims since the time since. A burst of claims may arrive one at a
	// time, so they are summed up.
	claimed int
	since   time.Time
}

// target returns the warm target now. idleTimeout is Config.WarmPoolIdleTimeout.
func (d demand) target(now time.Time, idleTimeout time.Duration) int {
	step := int(now.Sub(d.last) * decaySteps / max(idleTimeout, 1))
	if d.peak == 0 || step >= decaySteps {
		return 0
	}
	return max(d.peak>>max(step, 0), minWarm)
}

// after returns the demand after some claims. The claims of two decay steps are summed up, because
// those that the warm pool served are counted up to one step later.
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

// sizeWarmPool decides how many addresses the node pre-allocates, and which must be withdrawn from
// the warm pool before the write that frees them is sent, so that no claim gets them.
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
		// It is reserved now, or a rollback has removed it from the entry.
		if !p.draft.Family(a).IsAllocatable(a) || !p.draft.Entry.Contains(a) && p.local.uses[a].state == warm {
			p.withdraw.addrs = append(p.withdraw.addrs, a)
		}
	}
	if p.withdraw.limit = 2 * p.target; max(len(p.warm.v4), len(p.warm.v6)) > p.withdraw.limit {
		p.withdraw.shrink = true
	}
}

// warmTarget returns how many addresses of each family to pre-allocate, and whether to keep a warm
// pool at all. On a network without addresses, the warm pool serves claims that need none.
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

// leftovers counts the unused addresses that a former incarnation left in the entry.
func (p *planner) leftovers() int {
	n := 0
	for _, a := range p.draft.Entry.Addrs() {
		if !p.isKnown(a) && !p.danmEps.live[a] {
			n++
		}
	}
	return n
}

// allowance returns how many addresses of a pool one node may pre-allocate; its own warm addresses
// count as free. It is zero if fewer than 8 per node are free, so that no address of a nearly
// full pool stays unused on another node.
func allowance(free int64, nodes int) int {
	n := int64(max(nodes, 1))
	if free < scarce*n {
		return 0
	}
	return int(min(free/(share*n), 1<<20))
}

// freeOf counts the free addresses of a pool, with those of the warm pool and those that were
// withdrawn from it for this plan.
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

// stocked counts the addresses of that address's family that are in the warm pool or planned for
// it.
func (p *planner) stocked(a netip.Addr) int {
	n := len(p.warm.of(a))
	for _, b := range slices.Concat(p.stock, p.cool) {
		if a.Is4() == b.Is4() {
			n++
		}
	}
	return n
}

// refillWarmPool claims addresses up to the target if half of it, or less, is left.
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
