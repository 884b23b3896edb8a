// SPDX-License-Identifier: Apache-2.0

package claims

import "net/netip"

// owners are the addresses that DanmEps cover, with the DanmEps' names, by
// whose DanmEps they are.
type owners struct {
	mine, theirs map[netip.Addr]string
	// live are the addresses on interfaces of this node.
	live map[netip.Addr]bool
	// asked are the addresses that were published before the list was asked for: only
	// of these it says something when their DanmEps are not in it.
	asked map[netip.Addr]bool
}

// gone reports whether the DanmEp of a published address is not there any more.
func (o owners) gone(a netip.Addr, s state) bool {
	return s == published && o.asked[a] && !in(o.mine, a)
}

// published returns the addresses whose DanmEps are known to exist.
func (l *ledger) published() map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for a, u := range l.uses {
		if u.state == published {
			addrs[a] = true
		}
	}
	return addrs
}

// ownersOf sorts the endpoints of one network.
func ownersOf(endpoints []Endpoint, uid, node string) owners {
	o := owners{mine: map[netip.Addr]string{}, theirs: map[netip.Addr]string{}}
	for _, e := range endpoints {
		if !e.of(uid) {
			continue
		}
		into := o.theirs
		if e.Node == node {
			into = o.mine
		}
		for _, a := range both(e.V4, e.V6) {
			into[a] = e.Name
		}
	}
	return o
}

// of reports whether the endpoint counts for the network with that UID.
func (e Endpoint) of(uid string) bool { return e.NetworkUID == "" || e.NetworkUID == uid }

func (o owners) has(a netip.Addr) bool { return in(o.mine, a) || in(o.theirs, a) }

func in(set map[netip.Addr]string, a netip.Addr) bool {
	_, ok := set[a]
	return ok
}

// verify compares what the journal said with the entry and with a consistent
// list of the DanmEps, made after the entry was read. It returns the addresses
// that are in use here by the journal and have another owner; in a recovery that is
// no proof, since the other's DanmEp may be what an older state brought back.
func (l *ledger) verify(e entry, o owners, recovering bool) []netip.Addr {
	var stolen []netip.Addr
	for a := range l.rivals {
		l.decide(a, o.mine[a])
	}
	for a, name := range o.mine {
		if u, known := l.uses[a]; known && u.state == returning && u.owner != name && u.owner != "" {
			l.end(a) // released, and claimed again on this node
		}
		if _, known := l.uses[a]; !known {
			// The journal was lost; the DanmEp covers what may still be in use.
			l.uses[a] = use{state: published, owner: name}
		}
	}
	for a, u := range l.uses {
		covered := e.contains(a) || in(o.mine, a)
		switch {
		case (u.state == returning || u.state == freeing) && !covered:
			l.end(a) // the release was over before the journal knew
		case !covered && in(o.theirs, a) && !recovering:
			l.end(a)
			stolen = append(stolen, a)
		case o.gone(a, u.state):
			l.set(a, claimed)
		}
	}
	l.verified = true
	return stolen
}

// compare is for a book that knows all of this life, beside a state that may be older:
// what lost its DanmEp is covered by the entry again. It reports whether there are
// DanmEps of this node that the book does not know: these are to be removed.
func (l *ledger) compare(o *owners) (dead bool) {
	for a, u := range l.uses {
		if o.gone(a, u.state) {
			l.set(a, claimed)
		}
	}
	for a := range o.mine {
		if _, known := l.uses[a]; !known {
			return true
		}
	}
	return false
}
