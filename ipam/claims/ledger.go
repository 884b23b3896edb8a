// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"time"
)

// state is how this node stands to one address.
type state int

const (
	// claimed: in use here; the entry covers it.
	claimed state = iota + 1
	// published: in use here; a DanmEp covers it and the entry need not.
	published
	// returning: to be put back into the entry.
	returning
	// returned: out of use, and in the entry.
	returned
	// freeing: out of use; bit and entry are to be cleared.
	freeing
	// held: in the entry and in the hold, or taken from there and not published
	// yet. Only the hold knows which: who can remove it there, has it.
	held
	// cooling: out of use, in the entry, and not to be handed out for a while.
	cooling
	// stray: in the entry and on an interface of this node, though the journal
	// does not know whose.
	stray
	// quarantined: in the entry, and in use by something else on the network.
	quarantined
)

// use is one address that this node answers for.
type use struct {
	state state
	// owner is the attachment's, empty while it is not known.
	owner string
	// static: asked for by name.
	static bool
	// until is when a cooling address has rested, and when a quarantine ends.
	until time.Time
}

// resting is an address that was released, and when it may be handed out again.
type resting struct {
	addr  netip.Addr
	until time.Time
}

// done is an attachment's address that it released.
type done struct {
	owner string
	addr  netip.Addr
}

// ledger is what this node answers for in one network. It is the memory beside
// the entry: an address in the entry that the ledger does not know belongs to
// nobody (its caller gave up, or a former life claimed it) and is freed with the
// next write.
type ledger struct {
	uses map[netip.Addr]use
	// plain counts the attachments without addresses whose DanmEp may not
	// exist yet: the entry must be there for them, even when it is empty.
	plain int
	// done keeps a release that is repeated from freeing the address of
	// whoever has it by then, until the caller forgets the attachment. With the
	// zero address: an attachment that plain does not count, or no longer.
	done map[done]struct{}
	// rivals are further owners that the journal calls released, of addresses
	// in uses that are returning: all but one of them gave theirs back before
	// the journal knew. verify decides.
	rivals map[netip.Addr][]string

	// verified says that uses has been compared with the entry and the DanmEps
	// since the start.
	verified bool
	// fenced says that this life has changed the entry, so that no write of a
	// former life can be applied any more. seq is what was written last, or may
	// have been.
	fenced bool
	seq    int64
	// entry is the node's entry as last written or read, and sure says that it is
	// that in the object: no write since has lost its answer.
	entry entry
	sure  bool
	// tried is what the last write, which met a conflict, would have made of the entry; nil
	// for none. It may have met itself: a proxy on the way may send a request twice.
	tried *entry
	// remembered is the seq that the journal has of this network, 0 for none.
	remembered int64

	// rest are the cooling addresses in the order in which they may be used again.
	rest []resting
	// quarantine are the addresses in quarantine, in the order in which that ends.
	quarantine []resting
	// door counts attachments without addresses that took nothing but the entry.
	door *door
	// recovery is the beginning of the last recovery that this node has seen.
	recovery time.Time
	// missing says that a DanmEp of this node was lost: the cluster's state is
	// older than what this node knows.
	missing bool
}

func newLedger() ledger {
	return ledger{uses: map[netip.Addr]use{}, done: map[done]struct{}{}, rivals: map[netip.Addr][]string{}}
}

// set moves a known address on.
func (l *ledger) set(a netip.Addr, s state) {
	u := l.uses[a]
	u.state = s
	l.uses[a] = u
}

// fold counts those who came through the door.
func (l *ledger) fold() {
	if l.door != nil {
		l.plain += l.door.count()
	}
}

// end forgets an address that is not this node's any more.
func (l *ledger) end(a netip.Addr) {
	l.over(l.uses[a].owner, a)
	delete(l.uses, a)
}

// over notes that an attachment has released an address.
func (l *ledger) over(owner string, a netip.Addr) {
	if owner != "" {
		l.done[done{owner, a}] = struct{}{}
	}
}

// decide ends the rivalry for an address. Whose DanmEp has it was the last to
// claim it; without one, the rivals have only the entry left to clear, and any
// of them may.
func (l *ledger) decide(a netip.Addr, endpoint string) {
	for _, owner := range l.rivals[a] {
		if u := l.uses[a]; owner == endpoint {
			owner, u.owner = u.owner, owner
			l.uses[a] = u
		}
		l.over(owner, a)
	}
	delete(l.rivals, a)
}

// settle takes an attachment without addresses off plain: its DanmEp exists, or
// will not be made any more. Each counts once.
func (l *ledger) settle(owner string) {
	once := done{owner: owner}
	if _, over := l.done[once]; over {
		return
	}
	l.done[once] = struct{}{}
	l.fold()
	l.plain = max(l.plain-1, 0)
}

// any reports whether one of the addresses is in that state.
func (l *ledger) any(addrs []netip.Addr, s state) bool {
	for _, a := range addrs {
		if l.uses[a].state == s {
			return true
		}
	}
	return false
}

// strays reports whether there are any.
func (l *ledger) strays() bool {
	for _, u := range l.uses {
		if u.state == stray {
			return true
		}
	}
	return false
}

// recognise sees that an entry was written in this life, though the answer was lost (by its
// seq), or was that of a second copy of the request, which met a conflict with the first one.
func (l *ledger) recognise(e entry) {
	if t := l.tried; t != nil && e.same(t) && (!e.present || e.seq == t.seq) {
		l.seq = max(l.seq, e.seq)
		l.wrote(e.clone())
	}
	l.fenced = l.fenced || e.present && l.seq > 0 && e.seq == l.seq
}

// wrote records what the entry has become.
func (l *ledger) wrote(e entry) {
	l.entry, l.sure = e, true
	for a, u := range l.uses {
		if u.state == returning && e.contains(a) {
			l.set(a, returned)
		}
	}
}

// slack reports whether the entry covers what a DanmEp covers, or is there for
// nothing: a write can wait, but not for ever.
func (l *ledger) slack() bool {
	for a, u := range l.uses {
		if u.state == published && l.entry.contains(a) {
			return true
		}
	}
	l.fold()
	return l.entry.present && l.entry.empty() && l.entry.rollback == nil && l.plain == 0 && l.door == nil
}

// owing reports whether a write has to follow: something is to be returned or
// freed, or the entry has addresses that nobody knows.
func (l *ledger) owing() bool {
	for _, u := range l.uses {
		if u.state == returning || u.state == freeing {
			return true
		}
	}
	for _, a := range l.entry.addrs() {
		if _, known := l.uses[a]; !known {
			return true
		}
	}
	return false
}
