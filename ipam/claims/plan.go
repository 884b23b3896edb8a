// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// errNeedList asks for the DanmEps: the plan is made again with the same object
// and a list that was made after the object was read.
var errNeedList = errors.New("the list of DanmEps is needed")

// plan is what one attempt writes, and what is true once that is written.
type plan struct {
	// next is the object to write; nothing is written unless changed.
	next    *Object
	changed bool
	// entry is the node's own entry in next.
	entry entry
	// grants are the answers to claims.
	grants []grant
	// gone are known addresses that are not this node's any more: freed by this
	// plan (and perhaps granted again), or found not to be.
	gone []netip.Addr
	// collected counts the freed bits that nobody covered; collectErr says why
	// they could not be told. marked counts those that were covered and clear.
	collected, marked int64
	collectErr        error
	// keep says that the shelf is to be open, with as many addresses as mark; stock
	// is what to put there now, and toRest what may be put there after a rest.
	keep bool
	mark int
	// allowed bounds mark, however much is in demand.
	allowed       int
	stock, toRest []netip.Addr
	// served counts the dynamic claims that the plan grants.
	served int
	// starved says that claims wait for other nodes to give back.
	starved bool
	// room4 and room6 are how many more addresses may go into quarantine.
	room4, room6 int
	// reassert says that the node marks all that it has in use, and answers that it
	// reports to a recovery with that.
	reassert, answers bool
	// dead says that there are DanmEps of this node that it has removed: an older
	// state brought them back.
	dead bool
}

// planner makes a plan from an object just read and from the ledger; nothing of
// an earlier plan comes in but the addresses that the lost one had granted.
type planner struct {
	cfg *Config
	obj *Object
	// owners are the DanmEps' addresses, nil before they were listed.
	owners *owners
	// endpoints are the DanmEps; only the controller keeps them.
	endpoints []Endpoint
	book      *ledger
	claims    []*claim
	// collect asks to free what nobody covers.
	collect bool
	// fence asks for a real change: a write on the same object may be under way.
	fence bool
	// older says that the object is older than one that was read before, blank that
	// it has lost its status.
	older, blank bool
	// recheck asks for another look at strays.
	recheck bool
	now     time.Time
	// found is the entry as it was read, before its seq; unreadable says that it could
	// not be.
	found      entry
	before     int64
	unreadable bool
	// first says that this plan is the first to compare the book with the cluster.
	first bool
	// urgent says that what other nodes hold would help a claim.
	urgent bool
	// desk has the shelf. It is nil for the controller, which is no node.
	desk *desk

	plan
	held   map[string]v1.HeldAddresses
	v4, v6 family
}

// make plans in this order: what is free becomes free first, so that a full
// pool serves a claim with an address that was just given back.
func (p *planner) make() (*plan, error) {
	p.read()
	if err := p.uncertain(); err != nil {
		return nil, err
	}
	p.lookBack()
	if p.obj.IPAM == nil && p.idle() && !p.reassert {
		p.book.verified = true
		return &p.plan, nil
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	p.takeStock()
	kept := p.keepGranted()
	p.drop(kept)
	p.cover()
	p.restore()
	if p.mend(); p.marked > 0 {
		p.report(fmt.Errorf("%d bits were clear though their addresses are in use or held: they are set again", p.marked))
	}
	if p.collect {
		p.sweep()
	}
	if err := p.moveSubnets(); err != nil {
		return nil, err
	}
	p.serve(kept)
	p.restock()
	p.room4, p.room6 = p.quarantineRoom(&p.v4), p.quarantineRoom(&p.v6)
	p.finish()
	return &p.plan, nil
}

// read reads status.ipam but for the bitmaps.
func (p *planner) read() {
	next := *p.obj
	next.IPAM = &v1.IPAMStatus{}
	if p.obj.IPAM != nil {
		next.IPAM = p.obj.IPAM.DeepCopy()
	}
	p.next, p.held = &next, next.IPAM.Held
	p.entry = p.readEntry()
	p.before, p.found = p.entry.seq, p.entry.clone()
	p.book.recognise(p.entry)
	p.entry.seq = p.nextSeq()
}

// open verifies the ledger at first touch, and reads the bitmaps.
func (p *planner) open() error {
	if p.needsList() && p.owners == nil {
		return errNeedList
	}
	if p.first = !p.book.verified; p.first {
		p.verify()
	} else if p.reassert {
		p.dead = p.book.compare(p.owners)
	}
	v4, v6 := p.obj.subnets()
	p.v4 = family{name: "IPv4", fields: "spec.Options.allocation_pool or cidr", spec: v4}
	p.v6 = family{name: "IPv6", fields: "spec.Options.allocation_pool_v6 or net6", spec: v6}
	if v4 != nil || v6 != nil {
		reserved := p.cfg.Reserved(p.obj.Network)
		p.v4.reserved, p.v6.reserved = reserved, reserved
	}
	if err := p.v4.open(p.next.IPAM.V4, p.fill, p.report); err != nil {
		return err
	}
	if err := p.v6.open(p.next.IPAM.V6, p.fill, p.report); err != nil {
		return err
	}
	if p.owners == nil && p.miscounted() {
		return errNeedList
	}
	return nil
}

// miscounted reports whether the bitmaps have more or fewer bits than the last write
// counted: they are damaged, and what DanmEps cover may look free.
func (p *planner) miscounted() bool {
	return p.obj.IPAM != nil && p.allocated() != p.obj.Allocated
}

// needsList reports whether the plan cannot be made without the DanmEps.
func (p *planner) needsList() bool {
	unverified := !p.book.verified && (p.entry.present || len(p.book.uses) > 0)
	return unverified || p.collect || p.recheck || p.reassert
}

// idle reports whether nothing is asked of the network, and this node has
// nothing of it.
func (p *planner) idle() bool {
	return len(p.claims) == 0 && len(p.book.uses) == 0 && p.book.plain == 0 && !p.fence
}

func (p *planner) verify() {
	o := owners{}
	if p.owners != nil {
		o = *p.owners
	}
	for _, a := range p.book.verify(p.entry, o, p.recovering()) {
		p.report(fmt.Errorf("%v is in use on this node, but a DanmEp of another node has it", a))
	}
}

func (p *planner) report(err error) {
	p.cfg.Report(fmt.Errorf("network %v: %w", p.obj.Ref, err))
}

func (p *planner) family(a netip.Addr) *family {
	if a.Is4() {
		return &p.v4
	}
	return &p.v6
}

// finish writes the plan into the object.
func (p *planner) finish() {
	p.next.IPAM.V4, p.next.IPAM.V6 = p.v4.bitmap(), p.v6.bitmap()
	p.putEntry(p.needsEntry())
	p.changed = p.obj.IPAM == nil || !reflect.DeepEqual(p.obj.IPAM, p.next.IPAM)
	if p.fence && !p.changed {
		p.entry.seq++
		p.putEntry(true)
		p.changed = true
	}
	p.count()
}

// count fills status.allocated and status.capacity. They ride along: a change
// of these alone is no reason for a write.
func (p *planner) count() {
	p.next.Allocated, p.next.Capacity = 0, 0
	for _, f := range []*family{&p.v4, &p.v6} {
		if f.pool == nil {
			continue
		}
		p.next.Allocated += f.pool.Allocated()
		p.next.Capacity += f.pool.Capacity()
		if p.next.Capacity < 0 {
			p.next.Capacity = 1<<63 - 1 // both families saturate
		}
	}
}
