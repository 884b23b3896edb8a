// SPDX-License-Identifier: Apache-2.0

package claims

// waterMark is how many addresses of each family to keep, and whether the shelf may
// be open at all: that of a network without addresses lets in who needs none.
func (p *planner) waterMark() (mark int, keep bool) {
	d := p.desk
	pressed := d.pressed(p.obj, p.now) // also when nothing is kept: it notes the time
	switch {
	case p.obj.Deleting, p.obj.Invalid != nil, pressed, d.a.closing.Load(), p.cfg.Hold == 0,
		p.recovering(), p.v4.former || p.v6.former:
		return 0, false
	}
	w := d.water.after(p.demand(), p.now, p.cfg.Rest)
	mark = w.level(p.now, p.cfg.Rest)
	if p.first && mark == 0 {
		mark = p.leftover()
	}
	p.allowed = p.allowance()
	mark = min(mark, p.allowed)
	return mark, mark > 0
}

// allowance is how many addresses of each family this node may keep.
func (p *planner) allowance() int {
	most, nodes := p.cfg.Hold, max(p.cfg.Nodes(), len(p.held))
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool != nil {
			most = min(most, allowance(p.freeOf(f), nodes))
		}
	}
	return most
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
	free := f.pool.Capacity() - f.pool.AllocatedDynamic() - int64(len(p.claims))
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
