// SPDX-License-Identifier: Apache-2.0

package claims

import "net/netip"

// owners are the addresses that DanmEps cover, by whose DanmEps they are.
type owners struct {
	mine, theirs map[netip.Addr]struct{}
}

// ownersOf sorts the endpoints of one network.
func ownersOf(endpoints []Endpoint, uid, node string) owners {
	o := owners{mine: map[netip.Addr]struct{}{}, theirs: map[netip.Addr]struct{}{}}
	for _, e := range endpoints {
		if !e.of(uid) {
			continue
		}
		into := o.theirs
		if e.Node == node {
			into = o.mine
		}
		for _, a := range both(e.V4, e.V6) {
			into[a] = struct{}{}
		}
	}
	return o
}

// of reports whether the endpoint counts for the network with that UID.
func (e Endpoint) of(uid string) bool { return e.NetworkUID == "" || e.NetworkUID == uid }

func (o owners) has(a netip.Addr) bool { return in(o.mine, a) || in(o.theirs, a) }

func in(set map[netip.Addr]struct{}, a netip.Addr) bool {
	_, ok := set[a]
	return ok
}

// verify compares what the journal said with the entry and with a consistent
// list of the DanmEps, made after the entry was read. It returns the addresses
// that are in use here by the journal and have another owner.
func (l *ledger) verify(e entry, o owners) []netip.Addr {
	var stolen []netip.Addr
	for a := range o.mine {
		if _, known := l.uses[a]; !known {
			// The journal was lost; the DanmEp covers what may still be in use.
			l.uses[a] = published
		}
	}
	for a, s := range l.uses {
		covered := e.contains(a) || in(o.mine, a)
		switch {
		case (s == returning || s == freeing) && !covered:
			// The release was over before the journal knew.
			delete(l.uses, a)
		case !covered && in(o.theirs, a):
			delete(l.uses, a)
			stolen = append(stolen, a)
		case s == published && !in(o.mine, a):
			l.uses[a] = claimed
		}
	}
	l.verified = true
	return stolen
}
