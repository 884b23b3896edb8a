// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"sync/atomic"
)

// Stats is how an Allocator stands.
type Stats struct {
	// Held are addresses that are ready, Cooling those that rest.
	Held, Cooling int
	// Quarantined are addresses that something else on the network has.
	Quarantined int
	// Networks have something held or resting.
	Networks int
	// FromHold and Committed count the claims that succeeded, by where the
	// addresses came from; Exhausted those that found none.
	FromHold, Committed, Exhausted int64
}

// counters are the parts of Stats that only grow.
type counters struct {
	fromHold, committed, exhausted atomic.Int64
}

// count counts a claim that the hold did not serve.
func (c *counters) count(err error) {
	switch {
	case err == nil:
		c.committed.Add(1)
	case errors.Is(err, ErrExhausted):
		c.exhausted.Add(1)
	}
}

// Stats returns how the allocator stands now.
func (a *Allocator) Stats() Stats {
	s := Stats{
		FromHold: a.stats.fromHold.Load(), Committed: a.stats.committed.Load(), Exhausted: a.stats.exhausted.Load(),
	}
	for _, d := range *a.desks.Load() {
		held, cooling, quarantined := d.ready()
		s.Held += held
		s.Cooling += cooling
		s.Quarantined += quarantined
		if held+cooling+quarantined > 0 {
			s.Networks++
		}
	}
	return s
}

// ready counts what is on the shelf, what rests and what is in quarantine.
func (d *desk) ready() (held, resting, quarantined int) {
	if s := d.shelf.Load(); s != nil {
		for _, h := range s.holds() {
			held += h.Len()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.book.rest {
		if d.book.uses[r.addr].state == cooling {
			resting++
		}
	}
	for range d.book.inQuarantine() {
		quarantined++
	}
	return held, resting, quarantined
}
