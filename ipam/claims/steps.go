// SPDX-License-Identifier: Apache-2.0

package claims

import "net/netip"

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
		l.uses[a] = use{as, u.Owner}
	}
}

// grant records a claim that was written.
func (l *ledger) grant(addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.plain++
	}
	for _, a := range addrs {
		l.uses[a] = use{state: claimed}
	}
}

// publish records that the DanmEp of a claim exists.
func (l *ledger) publish(owner string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.settle(owner)
	}
	for _, a := range addrs {
		if l.uses[a].state == claimed {
			l.set(a, published)
		}
	}
}

// discard asks for bits and entries of claims that nobody used to be cleared.
func (l *ledger) discard(addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.plain = max(l.plain-1, 0)
	}
	for _, a := range addrs {
		if l.uses[a].state == claimed {
			l.set(a, freeing)
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
		case claimed:
			l.set(a, returning)
			if l.entry.contains(a) {
				l.set(a, returned)
			}
		case published:
			l.set(a, returning)
		}
	}
}

// free asks for bits and entries of addresses out of use to be cleared, whose
// DanmEps are gone. The bit of one that the entry does not cover stays: who
// deleted its DanmEp by force has left it to the garbage collection, and it may
// be somebody else's by now.
func (l *ledger) free(addrs []netip.Addr) {
	for _, a := range addrs {
		l.set(a, freeing)
	}
}
