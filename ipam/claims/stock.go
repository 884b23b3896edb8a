// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"slices"
)

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
// when the network or this daemon is about to go: then nobody is to follow.
func (p *planner) hurry() {
	if p.obj.Deleting || p.desk.a.closing.Load() {
		p.stopRest(int64(len(p.book.rest)), func(netip.Addr) bool { return true })
		return
	}
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool != nil && !f.former {
			p.stopRest(-p.freeOf(f), f.gives)
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

// waterMark is how many addresses of each family to keep, and whether the shelf may
// be open at all: that of a network without addresses lets in who needs none.
func (p *planner) waterMark() (mark int, keep bool) {
	d := p.desk
	pressed := d.pressed(p.obj, p.now) // also when nothing is kept: it notes the time
	switch {
	case p.obj.Deleting, p.obj.Invalid != nil, pressed, d.a.closing.Load(), p.cfg.Hold == 0,
		p.next.IPAM.Recovering != nil, p.v4.former || p.v6.former:
		return 0, false
	}
	w := d.water.after(p.demand(), p.now, p.cfg.Rest)
	mark = min(w.level(p.now, p.cfg.Rest), p.cfg.Hold)
	if p.first && mark == 0 {
		mark = min(p.leftover(), p.cfg.Hold)
	}
	if p.v4.pool == nil && p.v6.pool == nil {
		return mark, mark > 0
	}
	nodes := max(p.cfg.Nodes(), len(p.held))
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool != nil {
			mark = min(mark, allowance(p.freeOf(f), nodes))
		}
	}
	return mark, mark > 0
}

// demand counts the claims since the last look, with those that are waiting.
func (p *planner) demand() int {
	n := 0
	for _, c := range p.claims {
		if c.dynamic() {
			n++
		}
	}
	if s := p.desk.shelf.Load(); s != nil {
		n += int(s.takes.Load())
	}
	return n
}

// freeOf counts the free addresses of a pool, with those that only this node holds.
func (p *planner) freeOf(f *family) int64 {
	free := f.pool.Capacity() - f.pool.InUse() - int64(len(p.claims))
	if s := p.desk.shelf.Load(); s != nil {
		if h := s.of(f.pool.CIDR().Addr()); h != nil {
			free += int64(h.Len())
		}
	}
	return free
}

// leftover counts what a former life left in the entry that nobody uses.
func (p *planner) leftover() int {
	n := 0
	for _, a := range p.entry.addrs() {
		if _, known := p.book.uses[a]; !known && !p.owners.live[a] {
			n++
		}
	}
	return n
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
		case u.state == held, u.state == cooling, u.state == stray:
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

// adopt keeps an address of the entry that nobody here knows: a former life held it,
// or claimed it for a caller who is gone. It is handed out when the write is made
// that fences the former life, and after a rest if it may have been in use.
func (p *planner) adopt(a netip.Addr) bool {
	switch f := p.family(a); {
	case p.desk == nil:
		return false
	case p.owners != nil && p.owners.live[a]:
		p.book.uses[a] = use{state: stray}
		return true
	case p.mark == 0, !f.gives(a), p.stocked(a) >= p.mark:
		return false
	}
	if p.first && p.cfg.Cool > 0 {
		p.toRest = append(p.toRest, a)
	} else {
		p.stock = append(p.stock, a)
	}
	return true
}

// stocked is how many addresses of that one's family are on the shelf or on their way.
func (p *planner) stocked(a netip.Addr) int {
	n := 0
	if s := p.desk.shelf.Load(); s != nil && s.of(a) != nil {
		n = s.of(a).Len()
	}
	for _, b := range slices.Concat(p.stock, p.toRest) {
		if a.Is4() == b.Is4() {
			n++
		}
	}
	return n
}

// restock claims what the shelf lacks, once half of the mark is used up.
func (p *planner) restock() {
	if p.desk == nil || p.mark == 0 || p.starved {
		return
	}
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool == nil {
			continue
		}
		there := p.stocked(f.pool.CIDR().Addr())
		if there > p.mark/2 {
			continue
		}
		for _, a := range f.pool.NextN(nil, p.mark-there) {
			p.entry.of(a).Add(a)
			p.stock = append(p.stock, a)
		}
	}
}

// gives reports whether the pool hands an address out dynamically.
func (f *family) gives(a netip.Addr) bool { return f.pool != nil && !f.former && f.pool.Gives(a) }
