// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"net/netip"
	"slices"
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
// covers leaves the entry and keeps its bit; what is to be freed, and what
// nobody here knows, loses both.
func (p *planner) drop(kept map[netip.Addr]bool) {
	for _, a := range p.entry.addrs() {
		s, known := p.book.uses[a]
		switch {
		case kept[a]:
		case !known, s == freeing:
			p.family(a).release(a)
			p.entry.of(a).Remove(a)
		case s == published:
			p.entry.of(a).Remove(a)
		}
	}
}

// addrs returns all addresses of the entry.
func (e *entry) addrs() []netip.Addr {
	return slices.AppendSeq(slices.Collect(e.v4.All()), e.v6.All())
}

// cover puts into the entry what it has to cover and does not: addresses that
// are on their way back, and those that an older state of the object lost.
func (p *planner) cover() {
	for a, s := range p.book.uses {
		if s == published || s == freeing || p.entry.contains(a) {
			continue
		}
		set := p.family(a).has(a)
		switch {
		case s == returning && !set:
			p.gone = append(p.gone, a) // it is free already
		case p.foreign(a):
			p.gone = append(p.gone, a)
			p.report(fmt.Errorf("%v was this node's, but another node's entry has it", a))
		default:
			if f := p.family(a); !set && f.pool != nil {
				f.pool.Mark(a)
			}
			p.entry.of(a).Add(a)
		}
	}
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
