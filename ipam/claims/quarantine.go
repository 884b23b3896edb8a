// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"iter"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

const (
	// maxQuarantined bounds the addresses of one network and family that a node has in
	// quarantine, and quarantineShare those of all nodes, as a part of the pool: a Pod
	// that answers for every address must not use the pool up.
	maxQuarantined  = 64
	quarantineShare = 4
)

// Quarantine takes an address out of use that Claim gave and that something else on the
// network has. No dynamic claim gets it for Config.Quarantine; the node's entry covers
// it, marked as quarantined. It reports false when too many are in quarantine already:
// the address then rests as if it was discarded. It makes no request.
//
// The node keeps the address in its own entry, so that it needs to write nobody else's,
// and a node that is gone takes its quarantine along. A restart of the daemon ends it:
// whoever claims the address next asks the network again.
func (a *Allocator) Quarantine(net *network.Network, addr netip.Addr) bool {
	d := a.desk(KeyOf(net))
	defer d.mu.Unlock()
	if !d.book.unpublished(addr) {
		return false
	}
	room := &d.room4
	if addr.Is6() {
		room = &d.room6
	}
	if *room <= 0 {
		d.book.discard(both(addr, netip.Addr{}), d.restUntil())
		d.settleLater()
		return false
	}
	*room--
	d.book.quarantineUntil(addr, time.Now().Add(d.a.cfg.Quarantine))
	d.dirty = true // the mark in the entry
	d.poke()
	d.schedule(time.Now())
	return true
}

// quarantineUntil puts a claimed address into quarantine.
func (l *ledger) quarantineUntil(a netip.Addr, until time.Time) {
	l.uses[a] = use{state: quarantined, until: until}
	l.quarantine = append(l.quarantine, resting{a, until})
}

// inQuarantine are the addresses in quarantine.
func (l *ledger) inQuarantine() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, q := range l.quarantine {
			if u := l.uses[q.addr]; u.state == quarantined && u.until.Equal(q.until) && !yield(q.addr) {
				return
			}
		}
	}
}

// forever is after the end of any quarantine.
var forever = time.Unix(1<<40, 0)

// release frees the addresses whose quarantine is over by now.
func (l *ledger) release(now time.Time) {
	for len(l.quarantine) > 0 && !now.Before(l.quarantine[0].until) {
		q := l.quarantine[0]
		if u := l.uses[q.addr]; u.state == quarantined && u.until.Equal(q.until) {
			l.set(q.addr, freeing)
		}
		l.quarantine = l.quarantine[1:]
	}
}

// markQuarantined marks those addresses of the entry that are in quarantine.
func (p *planner) markQuarantined() {
	p.entry.quarantined4, p.entry.quarantined6 = ipam.Ranges{}, ipam.Ranges{}
	for a := range p.book.inQuarantine() {
		if p.entry.contains(a) {
			p.entry.quarantinedOf(a).Add(a)
		}
	}
}

// quarantineRoom is how many more addresses of a family this node may put into
// quarantine.
func (p *planner) quarantineRoom(f *family) int {
	if f.pool == nil {
		return 0
	}
	is4 := f.pool.CIDR().Addr().Is4()
	var own, others int64
	for a := range p.book.inQuarantine() {
		if a.Is4() == is4 {
			own++
		}
	}
	for name, h := range p.held {
		text := h.QuarantinedV6
		if is4 {
			text = h.QuarantinedV4
		}
		if r, err := parseHeld(text, is4); err == nil && name != p.cfg.Node {
			others += r.Len()
		}
	}
	return int(min(max(f.pool.Capacity()/quarantineShare, 1)-own-others, maxQuarantined-own))
}

// givesBack reports whether an entry has addresses of a family that a node gives back
// when it is asked: those in quarantine it keeps.
func (e *entry) givesBack(of netip.Addr) bool { return e.of(of).Len() > e.quarantinedOf(of).Len() }
