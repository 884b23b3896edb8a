// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How often pressure is raised, and for how long nothing is held after it was.
const (
	pressEvery   = 5 * time.Second
	pressureLast = time.Minute
	starvedPause = 500 * time.Millisecond
	// pressureOld is from what age on a pressure is over that was there before this
	// daemon: nothing takes it out of the object. Clocks differ by less.
	pressureOld = time.Hour
)

// errElsewhere says that what is asked for is in another node's entry, and may only
// be held there.
var errElsewhere = errors.New("other nodes were asked to give back what they hold")

// ofNode reports whether an entry of that name can be a node's. Others, such as
// "!quarantine", give nothing back.
func ofNode(name string) bool { return !strings.HasPrefix(name, "!") }

// orElsewhere adds to the error that another node's entry has what is asked for.
func (p *planner) orElsewhere(err error, has func(*entry) bool) error {
	for name, h := range p.held {
		if e, bad := parseEntry(h); ofNode(name) && name != p.cfg.Node && bad == nil && has(&e) {
			return fmt.Errorf("%w; %w", err, errElsewhere)
		}
	}
	return err
}

// maybeHeld reports whether other nodes may hold what a claim wants. An address by name
// outside of the dynamic range is never held: it is in use, or on its way back.
func (p *planner) maybeHeld(c *claim) bool {
	for _, a := range both(c.v4.Static, c.v6.Static) {
		if p.family(a).gives(a) {
			return true
		}
	}
	return c.dynamic()
}

// press asks the other nodes to give back what they hold.
func (p *planner) press() {
	if last := p.next.IPAM.ReclaimRequestTime; last == nil || p.now.Sub(last.Time) >= pressEvery || last.After(p.now) {
		now := metav1.NewMicroTime(p.now)
		p.next.IPAM.ReclaimRequestTime = &now
	}
}

// pressed reports whether the pool is under pressure: some node asked for addresses
// not long ago. Nodes' clocks differ, so it counts from when the value was new here.
func (d *desk) pressed(o *Object, now time.Time) bool {
	if o.IPAM == nil || o.IPAM.ReclaimRequestTime == nil {
		return false
	}
	if raised := o.IPAM.ReclaimRequestTime.Time; !raised.Equal(d.pressure) {
		before := d.pressure
		d.pressure, d.pressureAt = raised, now
		if before.IsZero() && now.Sub(raised) >= pressureOld {
			d.pressureAt = raised
		}
	}
	return now.Sub(d.pressureAt) < pressureLast
}

// unused takes a static address that only rests or is held on this node. It reports
// false when it is in use.
func (p *planner) unused(a netip.Addr) bool {
	if !p.entry.contains(a) || p.desk == nil {
		return false
	}
	switch p.book.uses[a].state {
	case cooling, quarantined: // who asks by name asks the network again before use
		p.book.set(a, freeing)
	case held:
		s := p.desk.shelf.Load()
		if s == nil || !s.remove(a) {
			return false
		}
		p.book.set(a, freeing)
	default:
		return false
	}
	p.gone = append(p.gone, a)
	return true
}
