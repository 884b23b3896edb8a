// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"net/netip"

	"github.com/patchbay-cni/patchbay/ipam"
)

// keepGranted finds the claims that a plan whose answer was lost had already
// granted: the own entry has their addresses and nobody here uses them. They
// are answered with these, so that a lost reply costs no second address.
func (p *planner) keepGranted() map[netip.Addr]bool {
	kept := map[netip.Addr]bool{}
	for _, c := range p.claims {
		for _, a := range c.tentative {
			_, used := p.book.uses[a]
			if used || kept[a] || !p.entry.contains(a) {
				c.tentative = nil
				break
			}
		}
		for _, a := range c.tentative {
			kept[a] = true
		}
	}
	return kept
}

// drop takes out of the entry what need not or must not be there: what a DanmEp
// covers leaves the entry and keeps its bit; what is to be freed loses both, and so
// does what nobody here knows and the hold has no room for.
func (p *planner) drop(kept map[netip.Addr]bool) {
	for _, a := range p.entry.addrs() {
		u, known := p.book.uses[a]
		switch {
		case kept[a], !known && p.adopt(a):
		case !known, u.state == freeing:
			p.entry.of(a).Remove(a)
			if !p.claimedElsewhere(a) {
				p.family(a).release(a)
			}
		case u.state == published:
			p.entry.of(a).Remove(a)
		}
	}
	for a, u := range p.book.uses {
		if u.state == freeing {
			p.gone = append(p.gone, a)
		}
	}
}

// cover puts into the entry what it has to cover and does not: addresses that
// are on their way back, and those that an older state of the object lost.
func (p *planner) cover() {
	for a, u := range p.book.uses {
		if u.state == published || u.state == freeing || p.entry.contains(a) {
			continue
		}
		if p.foreign(a) && !p.reassert {
			p.gone = append(p.gone, a)
			p.report(fmt.Errorf("%v was this node's, but another node's entry has it", a))
			continue
		}
		p.family(a).mark(a)
		p.entry.of(a).Add(a)
	}
}

// mend sets the bits that are clear though their addresses are covered: by an entry, by
// use on this node, or by a DanmEp if these were listed. A claim would else take what a
// damaged bitmap says is free.
func (p *planner) mend() {
	before := p.allocated()
	p.markEntry(&p.entry)
	for name, h := range p.held {
		if name == p.cfg.Node {
			continue
		}
		if e, err := parseEntry(h); err == nil { // the audit reports one that cannot be read
			p.markEntry(&e)
		}
	}
	for a, u := range p.book.uses {
		if u.state == published {
			p.family(a).mark(a)
		}
	}
	if p.owners != nil {
		for a := range p.owners.theirs {
			p.family(a).mark(a)
		}
		for a := range p.owners.mine {
			if p.book.uses[a].state != freeing { // its DanmEp went after the list
				p.family(a).mark(a)
			}
		}
	}
	p.marked += p.allocated() - before
}

// markEntry sets the bits of an entry.
func (p *planner) markEntry(e *entry) {
	for _, side := range [...]struct {
		family *family
		ranges *ipam.Ranges
	}{{&p.v4, &e.v4}, {&p.v6, &e.v6}} {
		if side.family.pool == nil {
			continue
		}
		for a := range side.ranges.All() {
			side.family.pool.MarkAllocated(a)
		}
	}
}

// allocated counts the bits that are set.
func (p *planner) allocated() int64 {
	var n int64
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool != nil {
			n += f.pool.Allocated()
		}
	}
	return n
}

// claimedElsewhere reports whether somebody else covers an address that this node's
// entry has: possible only when an older state has brought one of the two back.
func (p *planner) claimedElsewhere(a netip.Addr) bool {
	return p.recovering() && (p.foreign(a) || p.owners != nil && p.owners.has(a))
}

// foreign reports whether another entry has the address. One that cannot be
// read counts as having it: an address that leaks can be collected, one that is
// freed under somebody's feet cannot.
func (p *planner) foreign(a netip.Addr) bool {
	for name, h := range p.held {
		if name == p.cfg.Node {
			continue
		}
		e, err := parseEntry(h)
		if err != nil || e.contains(a) {
			return true
		}
	}
	return false
}
