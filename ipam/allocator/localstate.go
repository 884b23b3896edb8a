// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/status"
)

// addressState is the state of an address on this node.
type addressState int

const (
	// claimed addresses are in use on this node; the entry covers them.
	claimed addressState = iota + 1
	// published addresses are in use on this node; a DanmEp covers them and the entry need not.
	published
	// returning addresses have to be put back into the entry.
	returning
	// returned addresses are out of use, and in the entry.
	returned
	// freeing addresses are out of use; bit and entry have to be cleared.
	freeing
	// warm addresses are in the entry and in the warm pool, or were taken from there and not
	// published yet. Only the warm pool tells which: whoever removes an address there owns it.
	warm
	// cooling addresses are out of use, in the entry, and in their cooldown.
	cooling
	// orphan addresses are in the entry and on an interface of this node, although the journal
	// has no owner for them.
	orphan
	// quarantined addresses are in the entry, and in use by another machine on the network.
	quarantined
)

// use is the use of one address by this node.
type use struct {
	state addressState
	// owner is the name of the attachment's DanmEp, empty while it is not known.
	owner string
	// static means that the address was requested as a static one.
	static bool
	// until is when the cooldown of a cooling address ends, and when a quarantine ends.
	until time.Time
}

// release is the release of an address by an attachment.
type release struct {
	owner string
	addr  netip.Addr
}

// localState has the addresses of this node in one network. An address in the node's entry that
// localState does not have belongs to no Pod (its caller has given up, or a former incarnation
// claimed it) and is freed with the next write.
type localState struct {
	uses map[netip.Addr]use
	// addressless counts the attachments without addresses whose DanmEp may not exist yet.
	// They need the entry, even if it is empty.
	addressless int
	// released has the releases until Forget, so that a repeated one does not free the address
	// of a later owner. The zero address means an attachment that addressless does not count,
	// or no longer counts.
	released map[release]struct{}
	// contenders are further released attachments in the journal, by addresses that are
	// returning. All but one of them had freed the address before the journal recorded it;
	// verify decides which.
	contenders map[netip.Addr][]string

	// verified means that uses was compared with the entry and the DanmEps since the start.
	verified bool
	// entry is the state of this node's own entry.
	entry entryState
	// cooldown and quarantine have the cooling and the quarantined addresses by expiry.
	cooldown, quarantine expiries
	// recovery is the start time of the last recovery that this node has seen.
	recovery time.Time
	// danmEpMissing means that a DanmEp of this node was lost: the cluster's state was rolled
	// back.
	danmEpMissing bool
}

func newLocalState() localState {
	return localState{uses: map[netip.Addr]use{}, released: map[release]struct{}{}, contenders: map[netip.Addr][]string{}}
}

// set sets the state of a known address.
func (l *localState) set(a netip.Addr, s addressState) {
	u := l.uses[a]
	u.state = s
	l.uses[a] = u
}

// end removes an address that is no longer this node's.
func (l *localState) end(a netip.Addr) {
	l.markReleased(l.uses[a].owner, a)
	delete(l.uses, a)
}

// markReleased records that an attachment has released an address.
func (l *localState) markReleased(owner string, a netip.Addr) {
	if owner != "" {
		l.released[release{owner, a}] = struct{}{}
	}
}

// any reports whether one of the addresses is in that state.
func (l *localState) any(addrs []netip.Addr, s addressState) bool {
	for _, a := range addrs {
		if l.uses[a].state == s {
			return true
		}
	}
	return false
}

// has reports whether any address is in that state.
func (l *localState) has(s addressState) bool {
	for _, u := range l.uses {
		if u.state == s {
			return true
		}
	}
	return false
}

// addrs returns the addresses in that state.
func (l *localState) addrs(s addressState) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for a, u := range l.uses {
		if u.state == s {
			addrs[a] = true
		}
	}
	return addrs
}

// awaitsExpiry reports whether addresses are in cooldown or in quarantine.
func (l *localState) awaitsExpiry() bool {
	return len(l.cooldown.current(l, cooling)) > 0 || len(l.inQuarantine()) > 0
}

// inQuarantine returns the addresses in quarantine.
func (l *localState) inQuarantine() []netip.Addr { return l.quarantine.current(l, quarantined) }

// resume takes over one use from the journal. If two records have the same address, one has
// released it and the other has claimed it.
func (l *localState) resume(u Use) {
	addrs := status.Valid(u.V4, u.V6)
	switch {
	case len(addrs) > 0:
	case u.Phase == Claimed:
		l.addressless++
	default:
		l.released[release{owner: u.Owner}] = struct{}{}
	}
	as := map[Phase]addressState{Claimed: claimed, Published: published, Releasing: returning}[u.Phase]
	for _, a := range addrs {
		switch old, twice := l.uses[a]; {
		case twice && as == returning && old.state == returning:
			l.contenders[a] = append(l.contenders[a], u.Owner)
			continue
		case twice && as == returning:
			l.markReleased(u.Owner, a)
			continue
		case twice && old.state == returning:
			l.decide(a, "")
			l.end(a)
		}
		l.uses[a] = use{state: as, owner: u.Owner, static: a.Is4() && u.Static4 || a.Is6() && u.Static6}
	}
}

// decide resolves the contention for an address. The owner whose DanmEp has it was the last to
// claim it. Without a DanmEp only the entry is left to clear, and any contender may do that.
func (l *localState) decide(a netip.Addr, endpoint string) {
	for _, owner := range l.contenders[a] {
		if u := l.uses[a]; owner == endpoint {
			owner, u.owner = u.owner, owner
			l.uses[a] = u
		}
		l.markReleased(owner, a)
	}
	delete(l.contenders, a)
}

// grant records a claim that was written.
func (l *localState) grant(c *claim, addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.addressless++
	}
	for _, a := range addrs {
		l.uses[a] = use{state: claimed, static: a == c.v4.Static || a == c.v6.Static}
	}
}

// unpublished reports whether an address is in use, or may be, without a DanmEp.
func (l *localState) unpublished(a netip.Addr) bool {
	s := l.uses[a].state
	return s == claimed || s == warm
}

// publish records that the DanmEp of a claim exists.
func (l *localState) publish(owner string, addrs []netip.Addr) {
	if len(addrs) == 0 {
		l.endAddressless(owner)
	}
	for _, a := range addrs {
		if l.unpublished(a) {
			l.set(a, published)
		}
	}
}

// endAddressless stops counting an attachment without addresses, because its DanmEp exists or will
// not be created. A repeated call does nothing.
func (l *localState) endAddressless(owner string) {
	once := release{owner: owner}
	if _, over := l.released[once]; over {
		return
	}
	l.released[once] = struct{}{}
	l.addressless = max(l.addressless-1, 0)
}

// discard releases claimed addresses that no Pod has used.
func (l *localState) discard(addrs []netip.Addr, until time.Time) {
	if len(addrs) == 0 {
		l.addressless = max(l.addressless-1, 0)
	}
	for _, a := range addrs {
		if l.unpublished(a) {
			l.retire(a, until)
		}
	}
}

// owned returns those of the addresses that are still the owner's, and records the owner. An
// address of this node that the owner has not released has no other owner.
func (l *localState) owned(owner string, addrs []netip.Addr) []netip.Addr {
	var mine []netip.Addr
	for _, a := range addrs {
		u, known := l.uses[a]
		known = known && u.state != quarantined // a quarantined address has no owner
		if _, over := l.released[release{owner, a}]; over || !known || u.owner != "" && u.owner != owner {
			continue
		}
		u.owner = owner
		l.uses[a] = u
		mine = append(mine, a)
	}
	return mine
}

// returnToEntry requests that the entry has the addresses. It already has the claimed ones if this
// incarnation has written or read it.
func (l *localState) returnToEntry(addrs []netip.Addr) {
	for _, a := range addrs {
		switch l.uses[a].state {
		case claimed, warm:
			l.set(a, returning)
			if l.entry.written.Contains(a) {
				l.set(a, returned)
			}
		case published:
			l.set(a, returning)
		}
	}
}

// free takes addresses out of use whose DanmEps are deleted.
func (l *localState) free(addrs []netip.Addr, until time.Time) {
	for _, a := range addrs {
		if s := l.uses[a].state; s != freeing && s != cooling {
			l.retire(a, until)
		}
	}
}

// retire takes an address out of use. A dynamic address in the entry gets a cooldown until that
// time, so that neighbour caches expire; the zero time means no cooldown. Other addresses are
// freed. The bit of an address that the entry does not cover stays set: its DanmEp was deleted by
// force, so the address was left to garbage collection and may have another owner.
func (l *localState) retire(a netip.Addr, until time.Time) {
	u := l.uses[a]
	if until.IsZero() || u.static || !l.entry.written.Contains(a) {
		l.set(a, freeing)
		return
	}
	l.markReleased(u.owner, a)
	l.uses[a] = use{state: cooling, until: until}
	l.cooldown.add(a, until)
}

// putIntoQuarantine puts a claimed address into quarantine until that time.
func (l *localState) putIntoQuarantine(a netip.Addr, until time.Time) {
	l.uses[a] = use{state: quarantined, until: until}
	l.quarantine.add(a, until)
}

// wrote records the entry as it was written.
func (l *localState) wrote(e status.Entry) {
	l.entry.written, l.entry.sure = e, true
	for a, u := range l.uses {
		if u.state == returning && e.Contains(a) {
			l.set(a, returned)
		}
	}
}

// recognise finds out whether this incarnation has written an entry although it got no success: the
// response was lost (recognised by the seq), or was that of a duplicate of the request, which
// conflicted with the first one.
func (l *localState) recognise(e status.Entry) {
	if t := l.entry.attempted; t != nil && e.CoversSame(t) && (!e.Present || e.Seq == t.Seq) {
		l.entry.seq = max(l.entry.seq, e.Seq)
		l.wrote(e.Clone())
	}
	l.entry.fenced = l.entry.fenced || e.Present && l.entry.seq > 0 && e.Seq == l.entry.seq
}

// hasSlack reports whether the entry has addresses that DanmEps cover, or is no longer needed. The
// write that removes them may be delayed. open means that there is a warm pool, which needs the
// entry.
func (l *localState) hasSlack(open bool) bool {
	e := &l.entry.written
	for a, u := range l.uses {
		if u.state == published && e.Contains(a) {
			return true
		}
	}
	return e.Present && e.IsEmpty() && e.Rollback == nil && l.addressless == 0 && !open
}

// needsWrite reports whether a write is needed: an address has to be returned or freed, or the
// entry has addresses without a use.
func (l *localState) needsWrite() bool {
	for _, u := range l.uses {
		if u.state == returning || u.state == freeing {
			return true
		}
	}
	for _, a := range l.entry.written.Addrs() {
		if _, known := l.uses[a]; !known {
			return true
		}
	}
	return false
}

// verify compares the uses from the journal with the entry and with a consistent list of the
// DanmEps, which was made after the entry was read. It returns the addresses that are in use on
// this node and that a DanmEp of another node has. In a recovery it returns none, because the
// rollback may have brought the other DanmEp back.
func (l *localState) verify(e status.Entry, o danmEps, recovering bool) []netip.Addr {
	var stolen []netip.Addr
	for a := range l.contenders {
		l.decide(a, o.Mine[a])
	}
	for a, name := range o.Mine {
		if u, known := l.uses[a]; known && u.state == returning && u.owner != name && u.owner != "" {
			l.end(a) // released, and claimed again on this node
		}
		if _, known := l.uses[a]; !known {
			// The journal was lost, and the address may still be in use.
			l.uses[a] = use{state: published, owner: name}
		}
	}
	for a, u := range l.uses {
		covered := e.Contains(a) || o.HasMine(a)
		switch {
		case (u.state == returning || u.state == freeing) && !covered:
			l.end(a) // the release was complete before the journal recorded it
		case !covered && o.HasOther(a) && !recovering:
			l.end(a)
			stolen = append(stolen, a)
		case o.lost(a, u.state):
			l.set(a, claimed)
		}
	}
	l.verified = true
	return stolen
}

// coverLost has the entry cover the addresses that lost their DanmEp in a rollback.
func (l *localState) coverLost(o *danmEps) {
	for a, u := range l.uses {
		if o.lost(a, u.state) {
			l.set(a, claimed)
		}
	}
}

// expiries are addresses in the order of their expiry.
type expiries []expiry

type expiry struct {
	addr  netip.Addr
	until time.Time
}

func (x *expiries) add(a netip.Addr, until time.Time) { *x = append(*x, expiry{a, until}) }

// isCurrent reports whether the address is still in that state with that expiry. It may have been
// used and released again.
func (e expiry) isCurrent(l *localState, s addressState) bool {
	u := l.uses[e.addr]
	return u.state == s && u.until.Equal(e.until)
}

// current returns the addresses that are still in that state.
func (x *expiries) current(l *localState, s addressState) []netip.Addr {
	var addrs []netip.Addr
	for _, e := range *x {
		if e.isCurrent(l, s) {
			addrs = append(addrs, e.addr)
		}
	}
	return addrs
}

// expire removes the expired addresses, and returns those still in that state.
func (x *expiries) expire(l *localState, s addressState, now time.Time) []netip.Addr {
	var addrs []netip.Addr
	for len(*x) > 0 && !now.Before((*x)[0].until) {
		if e := (*x)[0]; e.isCurrent(l, s) {
			addrs = append(addrs, e.addr)
		}
		*x = (*x)[1:]
	}
	return addrs
}
