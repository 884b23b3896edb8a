// SPDX-License-Identifier: Apache-2.0

package claims

import "slices"

// apply makes a plan true that was written (or had nothing to write), and
// answers those whom it served.
func (d *desk) apply(p *plan, w work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = ""
	for _, a := range p.gone {
		d.book.end(a)
	}
	d.book.seq = max(d.book.seq, p.entry.seq)
	d.book.fenced = d.book.fenced || p.entry.present
	d.book.wrote(p.entry)
	for _, g := range p.grants {
		if g.to.gone {
			continue // nobody knows the addresses now: owing sees to them
		}
		if g.err == nil {
			d.book.grant(g.addrs)
		}
		g.to.reply(g)
	}
	d.claims = slices.DeleteFunc(d.claims, func(c *claim) bool { return c.answered() })
	d.answerWaiters(p, w.waiters)
	d.dirty = d.dirty || d.book.owing()
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
	d.a.mu.Lock()
	if d.a.desks[d.key] == d {
		delete(d.a.desks, d.key)
	}
	d.a.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims {
		c.reply(grant{err: cause})
	}
	d.claims = nil
	d.answerAll(nil)
	d.closed, d.dirty, d.book = true, false, newLedger()
	if d.timer != nil {
		d.timer.Stop()
	}
}
