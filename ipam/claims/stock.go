// SPDX-License-Identifier: Apache-2.0

package claims

import "net/netip"

// takeStock decides how much the node keeps ready, and takes off the shelf what is
// too much or cannot be used any more. It does so before the write that gives these
// addresses back is sent: from here on, nobody can be handed one.
func (p *planner) takeStock() {
	if p.desk == nil {
		return
	}
	p.mark, p.keep = p.waterMark()
	p.hurry()
	s := p.desk.shelf.Load()
	if s != nil && (!p.keep || s.generation != p.obj.Generation) {
		p.desk.clear()
		s = nil
	}
	if s != nil {
		p.thin(s)
	}
	p.lose(s)
	p.dismiss()
}

// hurry cuts short as many rests as there are claims that find nothing else, and all
// when the network or this daemon is about to go: then nobody is to follow. A subnet that
// the network does not have any more needs no quarantine.
func (p *planner) hurry() {
	if p.obj.Deleting || p.desk.a.closing.Load() {
		p.stopRest(int64(len(p.book.rest)), func(netip.Addr) bool { return true })
		p.book.release(forever)
		return
	}
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool != nil && !f.former {
			p.stopRest(-p.freeOf(f), f.gives)
		}
	}
	for a := range p.book.inQuarantine() { // else the network keeps its former subnet for that long
		if p.family(a).former {
			p.book.set(a, freeing)
		}
	}
}

// dismiss frees strays whose interface is gone.
func (p *planner) dismiss() {
	if p.owners == nil {
		return
	}
	for a, u := range p.book.uses {
		if u.state == stray && !p.owners.live[a] {
			p.book.set(a, freeing)
		}
	}
}

// thin takes off the shelf what is reserved by now, and what is over the mark.
func (p *planner) thin(s *shelf) {
	for _, h := range s.holds() {
		for a := range h.All() {
			if !p.family(a).gives(a) && s.remove(a) {
				p.book.set(a, freeing)
			}
		}
		for h.Len() > 2*p.mark {
			a, ok := h.Take()
			if !ok {
				break
			}
			p.book.set(a, freeing)
		}
	}
}

// lose forgets what nobody uses and the entry does not cover: an older state of the
// object has lost it. What was taken meanwhile is in use.
func (p *planner) lose(s *shelf) {
	for a, u := range p.book.uses {
		switch {
		case p.entry.contains(a):
		case u.state == held && (s == nil || !s.remove(a)):
			p.book.set(a, claimed)
		case u.state == held, u.state == cooling, u.state == stray, u.state == quarantined:
			p.book.set(a, freeing)
		}
	}
}

// stopRest frees up to n resting addresses that fit, those first that rest longest.
func (p *planner) stopRest(n int64, fits func(netip.Addr) bool) {
	for _, r := range p.book.rest {
		if n <= 0 {
			return
		}
		if u := p.book.uses[r.addr]; u.state == cooling && u.until.Equal(r.until) && fits(r.addr) {
			p.book.set(r.addr, freeing)
			n--
		}
	}
}
