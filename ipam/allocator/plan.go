// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// plan is the change that one attempt writes, with its effects.
type plan struct {
	// withdraw has the addresses that must be withdrawn from the warm pool before a plan can
	// be made. If it is not empty, the rest of the plan is not used: it is made again after the
	// withdrawal.
	withdraw withdrawal

	// next is the object to write; nothing is written unless changed.
	next    *status.Object
	changed bool
	// entry is the node's own entry in next.
	entry status.Entry
	// warnings describe the damage that was found.
	warnings []error

	// These are effects to apply before the write: freed addresses must not be allocated any
	// more, orphans are on interfaces although the journal has no owner for them, and tentative
	// are the addresses by which a later attempt recognises a claim whose response was lost.
	freed     map[netip.Addr]bool
	orphans   []netip.Addr
	tentative map[*claim][]netip.Addr

	// These are effects to apply after the write.

	// answers are the answers to claims.
	answers []answer
	// gone are known addresses that are no longer this node's: freed by this plan (and perhaps
	// granted again), or found to be another node's.
	gone []netip.Addr
	// collected is how many uncovered bits were freed, collectErr the error of that.
	collected  int64
	collectErr error
	// keepWarm means that there must be a warm pool, with as many addresses as target. stock
	// has the addresses to add now, cool those that need a cooldown first.
	keepWarm    bool
	target      int
	stock, cool []netip.Addr
	// allowed limits target, independently of the demand.
	allowed int
	// served counts the dynamic claims that the plan grants.
	served int
	// starved means that claims wait for other nodes to free addresses.
	starved bool
	// room4 and room6 are how many more addresses may go into quarantine.
	room4, room6 int
	// reassert means that the node has set the bits of all its addresses.
	reassert bool
	// deadDanmEps means that there are DanmEps of this node that it had deleted: a rollback
	// brought them back.
	deadDanmEps bool
}

// answer is the answer to a claim.
type answer struct {
	to    *claim
	addrs []netip.Addr
	err   error
}

// makePlan plans the next write for all claims. It is a pure function: it changes neither the
// local state, nor the claims, nor the warm pool. Of an earlier plan it uses only the tentative
// addresses.
//
// It frees addresses first, so that a full pool serves a claim with an address that was just
// released. The error is status.ErrNeedEndpoints if the plan needs the DanmEps.
func makePlan(s *snapshot, l *localState, claims []*claim) (*plan, error) {
	p := newPlanner(s, l, claims)
	defer func() { p.warnings = p.draft.Warnings }()
	if s.unused {
		p.next, p.entry = p.draft.Next, p.draft.Entry
		return &p.plan, nil
	}
	if err := p.draft.Open(s.nodeAddresses); err != nil {
		return &p.plan, err
	}
	if p.sizeWarmPool(); !p.withdraw.isEmpty() {
		return &p.plan, nil
	}
	p.freeUnusable()
	p.findTentative()
	p.dropFromEntry()
	p.addToEntry()
	p.reportToRecovery()
	p.markCovered()
	if s.collect {
		p.collectErr = p.draft.FreeUncovered(p.isKnown)
		p.collected = p.draft.Freed
	}
	if err := p.draft.MoveSubnets(); err != nil {
		return &p.plan, err
	}
	for _, a := range p.inUse() { // their DanmEps may have been deleted by force
		p.draft.Family(a).Mark(a)
	}
	if p.serveClaims(); !p.withdraw.isEmpty() {
		return &p.plan, nil
	}
	p.refillWarmPool()
	p.room4, p.room6 = p.quarantineRoom(&p.draft.V4), p.quarantineRoom(&p.draft.V6)
	p.finish()
	return &p.plan, nil
}

// planner makes one plan. It reads the snapshot, the local state and the claims.
type planner struct {
	*snapshot
	local  *localState
	claims []*claim
	draft  *status.Draft
	plan
}

func newPlanner(s *snapshot, l *localState, claims []*claim) *planner {
	p := &planner{snapshot: s, local: l, claims: claims}
	p.reassert = s.rollback.reassert
	p.freed, p.tentative = map[netip.Addr]bool{}, map[*claim][]netip.Addr{}
	var owners *status.Owners
	if s.danmEps != nil {
		owners = &s.danmEps.Owners
	}
	p.draft = status.NewDraft(s.obj, s.node, owners)
	p.draft.Entry.Seq = l.entry.next(p.draft.Entry.Seq, s.incarnation)
	if s.rollback.cause != "" {
		p.warn(fmt.Errorf("%s: its addresses are recovered from what all nodes have in use", s.rollback.cause))
	}
	p.draft.Entry.Rollback = s.rollback.report
	return p
}

func (p *planner) warn(err error) { p.draft.Warnings = append(p.draft.Warnings, err) }

// state returns the state of an address, after the changes of the plan so far.
func (p *planner) state(a netip.Addr) addressState {
	state, _ := p.lookup(a)
	return state
}

// lookup returns the state of an address, and whether the local state has the address.
func (p *planner) lookup(a netip.Addr) (state addressState, known bool) {
	u, known := p.local.uses[a]
	if len(p.freed) > 0 && p.freed[a] {
		return freeing, known
	}
	return u.state, known
}

// isKnown reports whether the local state has the address.
func (p *planner) isKnown(a netip.Addr) bool {
	_, known := p.local.uses[a]
	return known
}

// free plans to free a known address.
func (p *planner) free(a netip.Addr) { p.freed[a] = true }

// freeUnusable frees unused addresses that this node must not, or need not, keep.
func (p *planner) freeUnusable() {
	p.endCooldowns()
	for a, u := range p.local.uses {
		switch u.state {
		case orphan: // its interface is gone
			if p.danmEps != nil && !p.danmEps.live[a] {
				p.free(a)
			}
		default:
		}
		if p.draft.Entry.Contains(a) {
			continue
		}
		switch u.state { // a rollback has removed it from the entry
		case cooling, orphan, quarantined:
			p.free(a)
		default: // an address that was taken from the warm pool is in use
		}
	}
}

// endCooldowns ends as many cooldowns as claims would otherwise find no free address. If the
// network is in deletion or the daemon shuts down, no claim follows, and it ends all cooldowns
// and quarantines. It also ends the quarantines of a previous subnet whose addresses are not in the
// present one.
func (p *planner) endCooldowns() {
	if p.obj.Deleting || p.closing {
		for _, a := range slices.Concat(p.local.cooldown.current(p.local, cooling), p.local.inQuarantine()) {
			p.free(a)
		}
		return
	}
	inCooldown := p.local.cooldown.current(p.local, cooling)
	for _, f := range p.draft.Families() {
		if f.Pool == nil || f.Former {
			continue
		}
		missing := -p.freeOf(f)
		for _, a := range inCooldown {
			if missing > 0 && f.IsAllocatable(a) {
				p.free(a)
				missing--
			}
		}
	}
	for _, a := range p.local.inQuarantine() { // otherwise the network keeps its previous subnet for that long
		if f := p.draft.Family(a); f.Former && (f.Subnet == nil || !f.Subnet.CIDR.Contains(a)) {
			p.free(a)
		}
	}
}

// findTentative finds the claims that a previous plan has granted with a write whose response
// was lost: the own entry has their addresses, and the local state does not. These claims get
// the same addresses, so that a lost response wastes none.
func (p *planner) findTentative() {
	taken := map[netip.Addr]bool{}
	for _, c := range p.claims {
		lost := slices.ContainsFunc(c.tentative, func(a netip.Addr) bool {
			return p.isKnown(a) || taken[a] || !p.draft.Entry.Contains(a)
		})
		if lost || len(c.tentative) == 0 {
			continue
		}
		p.tentative[c] = c.tentative
		for _, a := range c.tentative {
			taken[a] = true
		}
	}
}

// dropFromEntry removes addresses from the entry. An address that a DanmEp covers keeps its bit.
// The bit is cleared if the address has to be freed, or if it has no use and no room in the warm
// pool.
func (p *planner) dropFromEntry() {
	kept := map[netip.Addr]bool{}
	for _, addrs := range p.tentative {
		for _, a := range addrs {
			kept[a] = true
		}
	}
	e := &p.draft.Entry
	for _, a := range e.Addrs() {
		state, known := p.lookup(a)
		switch {
		case kept[a], !known && p.adopt(a):
		case !known, state == freeing:
			e.Of(a).Remove(a)
			if !p.isCoveredElsewhere(a) {
				p.draft.Family(a).Release(a)
			}
		case state == published:
			e.Of(a).Remove(a)
		}
	}
	for a, u := range p.local.uses {
		if u.state == freeing || p.freed[a] {
			p.gone = append(p.gone, a)
		}
	}
}

// adopt keeps an address of the entry that has no use: a former incarnation had it in its warm
// pool, or claimed it for a caller that has given up. It enters the warm pool after the write
// that fences the former incarnation, and after a cooldown if it may have been in use.
func (p *planner) adopt(a netip.Addr) bool {
	switch {
	case p.danmEps != nil && p.danmEps.live[a]:
		p.orphans = append(p.orphans, a)
		return true
	case p.target == 0, !p.draft.Family(a).IsAllocatable(a), p.stocked(a) >= p.target:
		return false
	}
	if p.first && p.cooldown > 0 {
		p.cool = append(p.cool, a)
	} else {
		p.stock = append(p.stock, a)
	}
	return true
}

// isCoveredElsewhere reports whether another node also covers an address of this node's entry.
// That is possible only after a rollback.
func (p *planner) isCoveredElsewhere(a netip.Addr) bool {
	return p.draft.Recovering() && (p.draft.IsForeign(a) || p.danmEps != nil && p.danmEps.Has(a))
}

// addToEntry adds the addresses to the entry that it must cover: those that are being returned,
// and those that a rollback has removed.
func (p *planner) addToEntry() {
	for a := range p.local.uses {
		if s := p.state(a); s == published || s == freeing || p.draft.Entry.Contains(a) {
			continue
		}
		if p.draft.IsForeign(a) && !p.rollback.reassert {
			p.gone = append(p.gone, a)
			p.warn(fmt.Errorf("%v was this node's, but another node's entry has it", a))
			continue
		}
		p.draft.Family(a).Mark(a)
		p.draft.Entry.Of(a).Add(a)
	}
}

// reportToRecovery reports this node to a recovery, after its addresses were added to the entry.
// It also sets the bits that DanmEps cover, which older pages may lack. A node that reports a
// rollback does the same except for the report to the recovery.
func (p *planner) reportToRecovery() {
	if !p.rollback.reassert {
		return
	}
	p.draft.MarkDanmEps()
	if !p.first {
		for a := range p.danmEps.Mine {
			p.deadDanmEps = p.deadDanmEps || !p.isKnown(a)
		}
	}
	if p.deadDanmEps {
		return // not before they are deleted: another node may use their addresses
	}
	if !p.rollback.answers {
		return // the controller has not started the recovery yet
	}
	p.draft.Entry.Rollback = nil
	if rec := p.draft.Next.IPAM.Recovering; !slices.Contains(rec.ReportedNodes, p.node) {
		rec.ReportedNodes = append(rec.ReportedNodes, p.node)
		slices.Sort(rec.ReportedNodes)
	}
}

// inUse returns the addresses of this node that only DanmEps cover.
func (p *planner) inUse() []netip.Addr {
	var addrs []netip.Addr
	for a := range p.local.uses {
		if p.state(a) == published {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// markCovered sets the bits of covered addresses that are clear.
func (p *planner) markCovered() {
	p.draft.MarkCovered(p.inUse(), func(a netip.Addr) bool { return p.state(a) == freeing })
	if p.draft.Marked > 0 {
		p.warn(fmt.Errorf("%d bits were clear although their addresses are covered: they are set again", p.draft.Marked))
	}
}

const (
	// maxQuarantined limits the addresses of one network and family that a node has in
	// quarantine, and quarantineShare those of all nodes, as a part of the pool: a Pod that
	// answers for every address must not use the pool up.
	maxQuarantined  = 64
	quarantineShare = 4
)

// quarantineRoom is how many more addresses of a family this node may put into quarantine.
func (p *planner) quarantineRoom(f *status.Family) int {
	if f.Pool == nil {
		return 0
	}
	of := f.Pool.CIDR().Addr()
	var own, others int64
	for _, a := range p.quarantined() {
		if a.Is4() == of.Is4() {
			own++
		}
	}
	for _, o := range p.draft.Others() {
		others += o.QuarantinedOf(of).Len()
	}
	return int(min(max(f.Pool.Capacity()/quarantineShare, 1)-own-others, maxQuarantined-own))
}

// quarantined returns the addresses that stay in quarantine.
func (p *planner) quarantined() []netip.Addr {
	return slices.DeleteFunc(p.local.inQuarantine(), func(a netip.Addr) bool { return p.freed[a] })
}

// finish writes the plan into the object.
func (p *planner) finish() {
	p.putEntry(p.needsEntry())
	p.changed = p.draft.Encode()
	if p.fence && !p.changed {
		p.draft.Entry.Seq++
		p.putEntry(true)
		p.changed = true
	}
	p.next, p.entry = p.draft.Next, p.draft.Entry
}

// needsEntry reports whether the node needs its entry.
func (p *planner) needsEntry() bool {
	if !p.draft.Entry.IsEmpty() || p.draft.Entry.Rollback != nil || p.local.addressless > 0 || p.keepWarm {
		return true
	}
	return slices.ContainsFunc(p.answers, func(a answer) bool { return a.err == nil && len(a.addrs) == 0 })
}

// putEntry writes the own entry, with its quarantined addresses, or removes it.
func (p *planner) putEntry(present bool) {
	e := &p.draft.Entry
	e.QuarantinedV4, e.QuarantinedV6 = status.Entry{}.V4, status.Entry{}.V6
	for _, a := range p.quarantined() {
		if e.Contains(a) {
			e.QuarantinedOf(a).Add(a)
		}
	}
	p.draft.PutEntry(present, p.nodeUID)
}
