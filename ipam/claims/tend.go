// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/ipam"
)

// tend does what time brings: addresses that have rested are ready again or go
// back, and so does a hold that nobody uses; one that fell behind its demand is filled. It has a write made if one is due.
func (d *desk) tend(now time.Time) {
	if d.closed {
		return
	}
	d.measure(0, now)
	s := d.shelf.Load()
	for _, a := range d.book.rested(now) {
		if s != nil && d.room(s, a, now) && s.put(a) {
			d.book.set(a, held)
			continue
		}
		d.book.set(a, freeing)
	}
	d.book.release(now)
	if s != nil && d.level(now) == 0 {
		d.clear()
	}
	if d.retry || d.naps > 0 || d.moved(now) || d.book.slack() || d.book.owing() || d.lacks(now) {
		d.dirty, d.retry = true, false
		d.poke()
	}
	d.schedule(now)
}

// schedule has the desk tended when something is next due.
func (d *desk) schedule(now time.Time) {
	if len(d.book.rest) > 0 {
		d.later(d.book.rest[0].until.Sub(now))
	}
	if len(d.book.quarantine) > 0 {
		d.later(d.book.quarantine[0].until.Sub(now))
	}
	if d.shelf.Load() != nil {
		d.later(d.a.cfg.Rest / ebbs)
	}
	if d.look && !d.moved(now) {
		d.later(d.looked.Add(lookEvery).Sub(now))
	}
}

// measure counts claims as demand, those that the shelf served too.
func (d *desk) measure(claims int, now time.Time) {
	if s := d.shelf.Load(); s != nil {
		claims += int(s.takes.Swap(0))
	}
	d.water = d.water.after(claims, now, d.a.cfg.Rest)
}

// level is how many addresses the desk should keep ready.
func (d *desk) level(now time.Time) int {
	if d.a.closing.Load() {
		return 0
	}
	return min(d.water.level(now, d.a.cfg.Rest), d.allowed)
}

// room reports whether the shelf may have one more of that family.
func (d *desk) room(s *shelf, a netip.Addr, now time.Time) bool {
	h := s.of(a)
	return h != nil && h.Len() < d.level(now)
}

// lacks reports whether a hold has half of what it should, or less: planner.restock
// fills it then. Callers were served, so nobody has asked for it yet.
func (d *desk) lacks(now time.Time) bool {
	s, level := d.shelf.Load(), d.level(now)
	if s == nil || level == 0 {
		return false
	}
	return slices.ContainsFunc(s.holds(), func(h *ipam.WarmPool) bool { return h.Len() <= level/2 })
}

// clear closes the shelf. What is left on it is to be freed.
func (d *desk) clear() {
	s := d.shelf.Swap(nil)
	if s == nil {
		return
	}
	d.book.plain += s.door.close()
	d.book.door = nil
	for _, h := range s.holds() {
		for a, ok := h.Take(); ok; a, ok = h.Take() {
			d.book.set(a, freeing)
		}
	}
}
