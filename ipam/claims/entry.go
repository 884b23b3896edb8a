// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// entry is the node's own entry in held.
type entry struct {
	present bool
	seq     int64
	v4, v6  ipam.Ranges
	// rollback is the node's report of one, nil for none.
	rollback *v1.RollbackReport
	// quarantined4 and quarantined6 are those of v4 and v6 that no Pod gets for a while.
	quarantined4, quarantined6 ipam.Ranges
}

func (e *entry) of(a netip.Addr) *ipam.Ranges {
	if a.Is4() {
		return &e.v4
	}
	return &e.v6
}

// quarantinedOf is of for the addresses in quarantine.
func (e *entry) quarantinedOf(a netip.Addr) *ipam.Ranges {
	if a.Is4() {
		return &e.quarantined4
	}
	return &e.quarantined6
}

func (e *entry) contains(a netip.Addr) bool { return e.of(a).Contains(a) }

func (e *entry) empty() bool { return e.v4.Empty() && e.v6.Empty() }

// addrs returns all addresses of the entry.
func (e *entry) addrs() []netip.Addr {
	return slices.AppendSeq(slices.Collect(e.v4.All()), e.v6.All())
}

// clone returns an entry that can be changed apart from this one.
func (e *entry) clone() entry {
	c := *e
	c.v4, c.v6 = e.v4.Clone(), e.v6.Clone()
	c.quarantined4, c.quarantined6 = e.quarantined4.Clone(), e.quarantined6.Clone()
	return c
}

// same reports whether two entries cover the same addresses.
func (e *entry) same(o *entry) bool {
	return e.present == o.present && slices.Equal(e.addrs(), o.addrs())
}

// readEntry parses the own entry. One that cannot be read counts as empty: what
// is in use is put back from the ledger, the rest is collected.
func (p *planner) readEntry() entry {
	h, ok := p.held[p.cfg.Node]
	if !ok {
		return entry{}
	}
	e, err := parseEntry(h)
	if err != nil {
		p.unreadable = true
		p.report(fmt.Errorf("read own entry: %w", err))
	}
	return e
}

// maxHeld bounds the addresses of one entry and family, far above what a node
// needs: an entry that says "all of fd00::/8" costs no work.
const maxHeld = 1 << 16

func parseEntry(h v1.HeldAddresses) (entry, error) {
	e := entry{present: true, seq: h.Seq, rollback: h.Rollback}
	v4, err4 := parseHeld(h.V4, true)
	v6, err6 := parseHeld(h.V6, false)
	q4, errQ4 := parseHeld(h.QuarantinedV4, true)
	q6, errQ6 := parseHeld(h.QuarantinedV6, false)
	if err := errors.Join(err4, err6, errQ4, errQ6); err != nil {
		return e, err
	}
	e.v4, e.v6, e.quarantined4, e.quarantined6 = v4, v6, q4, q6
	return e, nil
}

func parseHeld(text string, is4 bool) (ipam.Ranges, error) {
	r, err := ipam.ParseRanges(text)
	if err != nil || r.Empty() {
		return r, err
	}
	if n := r.Len(); n > maxHeld {
		return r, fmt.Errorf("%d addresses in one entry, want at most %d", n, maxHeld)
	}
	for a := range r.All() {
		if a.Is4() != is4 {
			return r, fmt.Errorf("%v is of the other family", a)
		}
		break
	}
	return r, nil
}

// nextSeq is what seq becomes if an entry is written. The first write of this
// life raises it above whatever a former life wrote: a real change, so that
// writes of the former life that are still on their way meet a conflict.
func (p *planner) nextSeq() int64 {
	if p.book.fenced {
		return max(p.entry.seq, p.book.seq)
	}
	return max(p.entry.seq+1, p.cfg.Life, p.book.remembered+1)
}

// needsEntry reports whether anything rests on the node's entry.
func (p *planner) needsEntry() bool {
	p.book.fold()
	if !p.entry.empty() || p.entry.rollback != nil || p.book.plain > 0 || p.keep {
		return true
	}
	for _, g := range p.grants {
		if g.err == nil && len(g.addrs) == 0 {
			return true
		}
	}
	return false
}

// putEntry writes the own entry into the object, or takes it out.
func (p *planner) putEntry(present bool) {
	p.entry.present = present
	if !present {
		delete(p.held, p.cfg.Node)
		if len(p.held) == 0 {
			p.next.IPAM.Held = nil
		}
		return
	}
	if p.held == nil {
		p.held = map[string]v1.HeldAddresses{}
	}
	p.next.IPAM.Held = p.held
	p.markQuarantined()
	p.held[p.cfg.Node] = v1.HeldAddresses{
		UID: p.cfg.NodeUID, Seq: p.entry.seq,
		V4: p.entry.v4.String(), V6: p.entry.v6.String(), Rollback: p.entry.rollback,
		QuarantinedV4: p.entry.quarantined4.String(), QuarantinedV6: p.entry.quarantined6.String(),
	}
}
