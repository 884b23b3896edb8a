// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"time"
)

// both returns those of two addresses that are valid.
func both(a4, a6 netip.Addr) []netip.Addr {
	addrs := make([]netip.Addr, 0, 2)
	for _, a := range [...]netip.Addr{a4, a6} {
		if a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// resume takes over one use from the journal. Where two records have one
// address, it was released by one and claimed by the other.
func (l *ledger) resume(u Use) {
	addrs := both(u.V4, u.V6)
	switch {
	case len(addrs) > 0:
	case u.Phase == Claimed:
		l.plain++
	default:
		l.done[done{owner: u.Owner}] = struct{}{}
	}
	as := map[Phase]state{Claimed: claimed, Published: published, Releasing: returning}[u.Phase]
	for _, a := range addrs {
		switch old, twice := l.uses[a]; {
		case twice && as == returning && old.state == returning:
			l.rivals[a] = append(l.rivals[a], u.Owner)
			continue
		case twice && as == returning:
			l.over(u.Owner, a)
			continue
		case twice && old.state == returning:
			l.decide(a, "")
			l.end(a)
		}
		l.uses[a] = use{state: as, owner: u.Owner, static: u.static(a)}
	}
}

// grant records a claim that was written.
func (l *ledger) grant(c *claim, addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.plain++
	}
	for _, a := range addrs {
		l.uses[a] = use{state: claimed, static: a == c.v4.Static || a == c.v6.Static}
	}
}

// unpublished reports whether an address is in use, or may be, without a DanmEp.
func (l *ledger) unpublished(a netip.Addr) bool {
	s := l.uses[a].state
	return s == claimed || s == held
}

// publish records that the DanmEp of a claim exists.
func (l *ledger) publish(owner string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.settle(owner)
	}
	for _, a := range addrs {
		if l.unpublished(a) {
			l.set(a, published)
		}
	}
}

// discard takes claims back that nobody used.
func (l *ledger) discard(addrs []netip.Addr, until time.Time) {
	if len(addrs) == 0 {
		l.fold()
		l.plain = max(l.plain-1, 0)
	}
	for _, a := range addrs {
		if l.unpublished(a) {
			l.retire(a, until)
		}
	}
}

// owned returns those of the addresses that are still the owner's, and notes
// that they are. An address of this node that the owner has not released is
// nobody else's.
func (l *ledger) owned(owner string, addrs []netip.Addr) []netip.Addr {
	var mine []netip.Addr
	for _, a := range addrs {
		u, known := l.uses[a]
		known = known && u.state != quarantined // that has no owner
		if _, over := l.done[done{owner, a}]; over || !known || u.owner != "" && u.owner != owner {
			continue
		}
		u.owner = owner
		l.uses[a] = u
		mine = append(mine, a)
	}
	return mine
}

// giveBack asks for addresses to be in the entry. What is claimed is there
// already, once this life has seen the entry.
func (l *ledger) giveBack(addrs []netip.Addr) {
	for _, a := range addrs {
		switch l.uses[a].state {
		case claimed, held:
			l.set(a, returning)
			if l.entry.contains(a) {
				l.set(a, returned)
			}
		case published:
			l.set(a, returning)
		}
	}
}

// retire takes an address out of use. A dynamic one that the entry covers rests
// there, so that neighbours forget whose it was; zero asks for no rest. All else is
// freed: of what the entry does not cover, the bit stays. Who deleted its DanmEp by
// force has left it to the garbage collection, and it may be somebody else's by now.
func (l *ledger) retire(a netip.Addr, until time.Time) {
	u := l.uses[a]
	if until.IsZero() || u.static || !l.entry.contains(a) {
		l.set(a, freeing)
		return
	}
	l.over(u.owner, a)
	l.uses[a] = use{state: cooling, until: until}
	l.rest = append(l.rest, resting{a, until})
}

// free takes addresses out of use whose DanmEps are gone.
func (l *ledger) free(addrs []netip.Addr, until time.Time) {
	for _, a := range addrs {
		if s := l.uses[a].state; s != freeing && s != cooling {
			l.retire(a, until)
		}
	}
}

// rested takes the addresses off the list that have rested by now, and returns
// those that are still cooling.
func (l *ledger) rested(now time.Time) []netip.Addr {
	var addrs []netip.Addr
	for len(l.rest) > 0 && !now.Before(l.rest[0].until) {
		r := l.rest[0]
		// It may have been used and released once more since.
		if u := l.uses[r.addr]; u.state == cooling && u.until.Equal(r.until) {
			addrs = append(addrs, r.addr)
		}
		l.rest = l.rest[1:]
	}
	return addrs
}
