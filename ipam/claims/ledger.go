// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"

	"github.com/patchbay-cni/patchbay/ipam"
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
)

// ledger is what this node answers for in one network. It is the memory beside
// the entry: an address in the entry that the ledger does not know belongs to
// nobody (its caller gave up, or a former life claimed it) and is freed with the
// next write.
type ledger struct {
	uses map[netip.Addr]state
	// plain counts the attachments without addresses whose DanmEp may not
	// exist yet: the entry must be there for them, even when it is empty.
	plain int

	// verified says that uses has been compared with the entry and the DanmEps
	// since the start.
	verified bool
	// fenced says that this life has changed the entry, so that no write of a
	// former life can be applied any more. seq is what was written last, or may
	// have been.
	fenced bool
	seq    int64
	// entry is the node's entry as last written or read.
	entry entry
}

// entry is the node's own entry in held.
type entry struct {
	present bool
	seq     int64
	v4, v6  ipam.Ranges
}

func (e *entry) of(a netip.Addr) *ipam.Ranges {
	if a.Is4() {
		return &e.v4
	}
	return &e.v6
}

func (e *entry) contains(a netip.Addr) bool { return e.of(a).Contains(a) }

func (e *entry) empty() bool { return e.v4.Empty() && e.v6.Empty() }

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

func newLedger() ledger { return ledger{uses: map[netip.Addr]state{}} }

// resume takes over one use from the journal.
func (l *ledger) resume(u Use) {
	addrs := both(u.V4, u.V6)
	if len(addrs) == 0 && u.Phase == Claimed {
		l.plain++
	}
	for _, a := range addrs {
		l.uses[a] = map[Phase]state{Claimed: claimed, Published: published, Releasing: returning}[u.Phase]
	}
}

// grant records a claim that was written.
func (l *ledger) grant(addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.plain++
	}
	for _, a := range addrs {
		l.uses[a] = claimed
	}
}

// publish records that the DanmEp of a claim exists.
func (l *ledger) publish(addrs []netip.Addr) {
	if len(addrs) == 0 && l.plain > 0 {
		l.plain--
	}
	for _, a := range addrs {
		if l.uses[a] == claimed {
			l.uses[a] = published
		}
	}
}

// giveBack asks for addresses to be in the entry. What is claimed is there
// already, once this life has seen the entry.
func (l *ledger) giveBack(addrs []netip.Addr) {
	for _, a := range addrs {
		switch l.uses[a] {
		case claimed:
			l.uses[a] = returning
			if l.verified && l.entry.contains(a) {
				l.uses[a] = returned
			}
		case published:
			l.uses[a] = returning
		}
	}
}

// discard asks for bits and entries of claims that nobody used to be cleared.
func (l *ledger) discard(addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.publish(nil)
	}
	for _, a := range addrs {
		if l.uses[a] == claimed {
			l.uses[a] = freeing
		}
	}
}

// free asks for bits and entries of addresses out of use to be cleared, whose
// DanmEps are gone. The bit of one that the entry does not cover stays: who
// deleted its DanmEp by force has left it to the garbage collection, and it may
// be somebody else's by now.
func (l *ledger) free(addrs []netip.Addr) {
	for _, a := range addrs {
		if _, known := l.uses[a]; known {
			l.uses[a] = freeing
		}
	}
}

// any reports whether one of the addresses is in that state.
func (l *ledger) any(addrs []netip.Addr, s state) bool {
	for _, a := range addrs {
		if l.uses[a] == s {
			return true
		}
	}
	return false
}

// wrote records what the entry has become.
func (l *ledger) wrote(e entry) {
	l.entry = e
	for a, s := range l.uses {
		switch {
		case s == returning && e.contains(a):
			l.uses[a] = returned
		case s == freeing && !e.contains(a):
			delete(l.uses, a)
		}
	}
}

// recognise sees by its seq that an entry was written in this life, though the
// answer was lost.
func (l *ledger) recognise(e entry) {
	l.fenced = l.fenced || e.present && l.seq > 0 && e.seq == l.seq
}

// slack reports whether the entry covers what a DanmEp covers, or is there for
// nothing: a write can wait, but not for ever.
func (l *ledger) slack() bool {
	for a, s := range l.uses {
		if s == published && l.entry.contains(a) {
			return true
		}
	}
	return l.entry.present && l.entry.empty() && l.plain == 0
}

// owing reports whether a write has to follow: something is to be returned or
// freed, or the entry has addresses that nobody knows.
func (l *ledger) owing() bool {
	for _, s := range l.uses {
		if s == returning || s == freeing {
			return true
		}
	}
	for _, r := range [...]ipam.Ranges{l.entry.v4, l.entry.v6} {
		for a := range r.All() {
			if _, known := l.uses[a]; !known {
				return true
			}
		}
	}
	return false
}
