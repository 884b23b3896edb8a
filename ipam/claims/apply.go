// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"time"
)

// apply makes a plan true that was written (or had nothing to write), and
// answers those whom it served.
func (d *desk) apply(p *plan, w work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = ""
	for _, a := range p.gone {
		d.book.end(a)
	}
	d.starved = p.starved
	d.room4, d.room6 = p.room4, p.room6
	if p.reassert {
		d.book.missing = false
	}
	if p.next.IPAM.Recovering != nil {
		d.book.recovery = p.next.IPAM.Recovering.StartTime.Time
	}
	if p.dead {
		d.later(deadEvery)
		d.retry = true
	}
	if p.entry.present {
		d.book.seq = max(d.book.seq, p.entry.seq)
	}
	d.book.fenced = d.book.fenced || p.entry.present
	d.book.tried = nil
	d.book.wrote(p.entry)
	p.grants = slices.DeleteFunc(p.grants, func(g grant) bool { return g.to.gone }) // owing sees to theirs
	for _, g := range p.grants {
		if g.err == nil {
			d.book.grant(g.to, g.addrs)
		}
	}
	d.restock(p)
	// Last: a caller that claims again at once finds the warm pool filled.
	for _, g := range p.grants {
		g.to.reply(g)
	}
	d.claims = slices.DeleteFunc(d.claims, func(c *claim) bool { return c.answered() })
	d.answerWaiters(p, w.waiters)
	d.dirty = d.dirty || d.book.owing()
}

// restock puts on the shelf what a plan claimed for it, and opens it if need be.
func (d *desk) restock(p *plan) {
	now := time.Now()
	d.measure(p.served, now)
	d.allowed = p.allowed
	if p.keep && p.entry.present && d.shelf.Load() == nil && d.a.ctx.Err() == nil && !d.a.closing.Load() {
		s := newShelf(p.next.Network, d.a.cfg.Hold)
		d.book.door = &s.door
		d.shelf.Store(s)
	}
	s := d.shelf.Load()
	for _, a := range p.stock {
		d.book.set(a, held)
		if s == nil || !s.put(a) {
			d.book.set(a, freeing)
		}
	}
	for _, a := range p.toRest {
		d.book.uses[a] = use{state: claimed}
		d.book.retire(a, d.restUntil())
	}
	if s != nil {
		s.low.Store(int64(low(p.mark)))
		s.asked.Store(false)
	}
	d.schedule(now)
}

func (c *claim) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// answerWaiters answers those whose wish has come true.
func (d *desk) answerWaiters(p *plan, served []*waiter) {
	d.waiters = slices.DeleteFunc(d.waiters, func(w *waiter) bool {
		var err error
		if w.fresh && !slices.Contains(served, w) || !w.ready(&d.book) {
			return false
		}
		if w.collect {
			w.collected, err = p.collected, p.collectErr
		}
		w.done <- err
		return true
	})
}

// vanish closes the desk when the network is not there any more: claims fail,
// and there is nothing left to release. A network of the same name has another
// desk.
func (d *desk) vanish(cause error) {
	d.a.drop(d)
	d.a.versions.forget(d.key)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims {
		c.reply(grant{err: cause})
	}
	d.claims = nil
	d.answerAll(nil)
	d.closed, d.dirty, d.book = true, false, newLedger()
	d.shelf.Store(nil)
	if d.timer != nil {
		d.timer.Stop()
	}
}
