// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"slices"
)

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
		for _, a := range f.pool.AllocateN(nil, p.mark-there) {
			p.entry.of(a).Add(a)
			p.stock = append(p.stock, a)
		}
	}
}

// gives reports whether the pool hands an address out dynamically.
func (f *family) gives(a netip.Addr) bool {
	return f.pool != nil && !f.former && f.pool.IsAllocatable(a)
}
