// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam"
)

// ErrNeedEndpoints requests the network's DanmEps: the caller lists them and makes a new draft from
// the same object. The list must be newer than the object.
var ErrNeedEndpoints = errors.New("the list of DanmEps is needed")

// Draft is a planned change of a network's status. Its decoded copies share no memory with the
// object that was read.
type Draft struct {
	// Object is the object as read, Next what is to be written.
	Object, Next *Object
	// Entry is the own entry of the planning node. An unreadable one counts as empty.
	Entry Entry
	// V4 and V6 are the families, after Open.
	V4, V6 Family
	// Warnings describe damage that can be repaired.
	Warnings []error
	// Marked counts the bits that MarkCovered has set, Freed those that FreeUncovered has
	// cleared.
	Marked, Freed int64

	// owners are the addresses of DanmEps; nil before they were listed.
	owners *Owners
	// node is the node that plans, the key of its entry; empty for the controller.
	node string
	// others are the entries of other nodes, if parsed is true.
	others []NamedEntry
	parsed bool
}

// NamedEntry is the entry of another node.
type NamedEntry struct {
	Name string
	*Entry
	// Err is the error of an unreadable entry; Entry has no addresses then.
	Err error
}

// NewDraft returns a draft for a node, or for the controller if node is empty.
func NewDraft(obj *Object, node string, owners *Owners) *Draft {
	next := *obj
	next.IPAM = &v1.IPAMStatus{}
	if obj.IPAM != nil {
		next.IPAM = obj.IPAM.DeepCopy()
	}
	d := &Draft{Object: obj, Next: &next, node: node, owners: owners}
	if h, ok := next.IPAM.Held[node]; ok && node != "" {
		e, err := ParseEntry(h)
		if err != nil {
			d.warn(fmt.Errorf("read own entry: %w", err))
		}
		d.Entry = e
	}
	return d
}

func (d *Draft) warn(err error) { d.Warnings = append(d.Warnings, err) }

// Open decodes the bitmaps. Dynamic claims never get nodeAddresses. The error is ErrNeedEndpoints if
// a bitmap has to be rebuilt and the DanmEps were not listed.
func (d *Draft) Open(nodeAddresses []netip.Addr) error {
	v4, v6 := d.Object.Subnets()
	nodeAddresses = slices.Clip(nodeAddresses)
	d.V4 = Family{Name: "IPv4", Subnet: v4, nodeAddresses: nodeAddresses}
	d.V6 = Family{Name: "IPv6", Subnet: v6, nodeAddresses: nodeAddresses}
	if err := d.V4.open(d.Next.IPAM.V4, d.fill, d.warn); err != nil {
		return err
	}
	if err := d.V6.open(d.Next.IPAM.V6, d.fill, d.warn); err != nil {
		return err
	}
	if d.owners == nil && (d.V4.miscounted || d.V6.miscounted) {
		return ErrNeedEndpoints
	}
	return nil
}

// Family returns the family of an address.
func (d *Draft) Family(a netip.Addr) *Family {
	if a.Is4() {
		return &d.V4
	}
	return &d.V6
}

// Families returns both families.
func (d *Draft) Families() [2]*Family { return [...]*Family{&d.V4, &d.V6} }

// allocated counts the bits that are set.
func (d *Draft) allocated() int64 {
	var n int64
	for _, f := range d.Families() {
		if f.Pool != nil {
			n += f.Pool.Allocated()
		}
	}
	return n
}

// Recovering reports whether it is unknown which addresses are in use. The own report of a rollback
// counts even if it is deferred.
func (d *Draft) Recovering() bool { return d.Entry.Rollback != nil || Recovering(d.Next.IPAM) }

// Others returns the entries of all other nodes, in no particular order.
func (d *Draft) Others() []NamedEntry {
	if d.parsed {
		return d.others
	}
	d.parsed = true
	entries := make([]Entry, len(d.Next.IPAM.Held))
	d.others = make([]NamedEntry, 0, len(entries))
	for name, h := range d.Next.IPAM.Held {
		if name != d.node || d.node == "" {
			parsed, err := ParseEntry(h)
			e := &entries[len(d.others)]
			*e = parsed
			d.others = append(d.others, NamedEntry{Name: name, Entry: e, Err: err})
		}
	}
	return d.others
}

// IsForeign reports whether another entry has the address. An unreadable entry counts as having it:
// a leaked address can be collected later, while freeing an address in use cannot be undone.
func (d *Draft) IsForeign(a netip.Addr) bool {
	return slices.ContainsFunc(d.Others(), func(o NamedEntry) bool { return o.Err != nil || o.Contains(a) })
}

// RemoveEntry removes the entry of a node.
func (d *Draft) RemoveEntry(name string) {
	delete(d.Next.IPAM.Held, name)
	d.others = slices.DeleteFunc(d.others, func(o NamedEntry) bool { return o.Name == name })
}

// PutEntry writes the own entry into the object, or removes it.
func (d *Draft) PutEntry(present bool, nodeUID string) {
	d.Entry.Present = present
	if !present {
		delete(d.Next.IPAM.Held, d.node)
		return
	}
	if d.Next.IPAM.Held == nil {
		d.Next.IPAM.Held = map[string]v1.HeldAddresses{}
	}
	d.Next.IPAM.Held[d.node] = d.Entry.encode(nodeUID)
}

// covering returns all entries, with the own one as planned. It returns ErrNeedEndpoints without the
// DanmEps, because its callers need them too.
func (d *Draft) covering() ([]Entry, error) {
	if d.owners == nil {
		return nil, ErrNeedEndpoints
	}
	entries := []Entry{d.Entry}
	for _, o := range d.Others() {
		if o.Err != nil {
			return nil, fmt.Errorf("read entry of %q: %w: %w", o.Name, ErrUnknownState, o.Err)
		}
		entries = append(entries, *o.Entry)
	}
	return entries, nil
}

// fill sets the bits of a pool from all entries and DanmEps.
func (d *Draft) fill(pool *ipam.Pool) error {
	entries, err := d.covering()
	if err != nil {
		return fmt.Errorf("find covered addresses of %v: %w", pool.CIDR(), err)
	}
	for a := range d.owners.Mine {
		pool.MarkAllocated(a)
	}
	for a := range d.owners.Others {
		pool.MarkAllocated(a)
	}
	for _, e := range entries {
		for _, r := range [...]ipam.Ranges{e.V4, e.V6} {
			for a := range r.All() {
				pool.MarkAllocated(a)
			}
		}
	}
	return nil
}

// MarkCovered sets the clear bits of covered addresses: covered by an entry, by published, or by a
// DanmEp if the DanmEps were listed and this node is not freeing the address. Without that, a claim
// could take an address that is free only in a damaged bitmap.
func (d *Draft) MarkCovered(published []netip.Addr, freeing func(netip.Addr) bool) {
	before := d.allocated()
	d.markEntry(&d.Entry)
	for _, o := range d.Others() { // the garbage collector reports unreadable ones
		d.markEntry(o.Entry)
	}
	for _, a := range published {
		d.Family(a).Mark(a)
	}
	if d.owners != nil {
		for a := range d.owners.Others {
			d.Family(a).Mark(a)
		}
		for a := range d.owners.Mine {
			if !freeing(a) { // its DanmEp was deleted after the list
				d.Family(a).Mark(a)
			}
		}
	}
	d.Marked += d.allocated() - before
}

// markEntry sets the bits of an entry.
func (d *Draft) markEntry(e *Entry) {
	for _, side := range [...]struct {
		family *Family
		ranges *ipam.Ranges
	}{{&d.V4, &e.V4}, {&d.V6, &e.V6}} {
		if side.family.Pool == nil {
			continue
		}
		for a := range side.ranges.All() {
			side.family.Pool.MarkAllocated(a)
		}
	}
}

// MarkDanmEps sets the bits that DanmEps cover.
func (d *Draft) MarkDanmEps() {
	for _, addrs := range [...]map[netip.Addr]string{d.owners.Mine, d.owners.Others} {
		for a := range addrs {
			d.Family(a).Mark(a)
		}
	}
}

// FreeUncovered clears the bits that neither an entry nor a DanmEp covers, except those for which
// inUse reports true: an address may be in use although its DanmEp was deleted by force. The object
// was read before the DanmEps were listed, and the write has the resourceVersion of that read.
// Therefore, if a node has covered such a bit since then, the write has a conflict.
func (d *Draft) FreeUncovered(inUse func(netip.Addr) bool) error {
	for _, f := range d.Families() {
		if f.Pool == nil {
			continue
		}
		covered, err := ipam.New(ipam.Config{CIDR: f.Pool.CIDR()})
		if err == nil {
			err = d.fill(covered)
		}
		if err != nil {
			return err
		}
		var leaked []netip.Addr
		for a := range f.Pool.All() {
			if !inUse(a) && !covered.Has(a) {
				leaked = append(leaked, a)
			}
		}
		for _, a := range leaked {
			f.Pool.Release(a)
		}
		d.Freed += int64(len(leaked))
	}
	return nil
}

// MoveSubnets replaces the bitmaps whose subnet differs from that of the spec, if no address outside
// of the new subnet is covered. Covered addresses inside of it stay set: the subnet may have been
// enlarged, or a compromised node may have recorded a wrong one. The next address stays the next, so
// that freed ones are not reused early. With an invalid spec it changes nothing, and releases continue
// with the recorded subnet.
func (d *Draft) MoveSubnets() error {
	for _, f := range d.Families() {
		if !f.Former || d.Object.Invalid != nil {
			continue
		}
		entries, err := d.covering()
		if err != nil {
			return err
		}
		if d.usedOutside(f, entries) {
			continue // releases continue, claims are refused
		}
		former := f.Pool
		if err := f.reset(); err != nil {
			return err
		}
		if f.Pool == nil {
			continue
		}
		f.Pool.ContinueAfter(former)
		if err := d.fill(f.Pool); err != nil {
			return err
		}
	}
	return nil
}

// usedOutside reports whether an entry or a DanmEp has an address of the family that is
// not in the subnet of the spec.
func (d *Draft) usedOutside(f *Family, entries []Entry) bool {
	outside := func(a netip.Addr) bool {
		return a.Is4() == (f == &d.V4) && (f.Subnet == nil || !f.Subnet.CIDR.Contains(a))
	}
	for i := range entries {
		if slices.ContainsFunc(entries[i].Addrs(), outside) {
			return true
		}
	}
	for _, addrs := range [...]map[netip.Addr]string{d.owners.Mine, d.owners.Others} {
		for a := range addrs {
			if outside(a) {
				return true
			}
		}
	}
	return false
}

// Encode writes the bitmaps into Next, and reports whether status.ipam has changed.
func (d *Draft) Encode() (changed bool) {
	if len(d.Next.IPAM.Held) == 0 {
		d.Next.IPAM.Held = nil
	}
	d.Next.IPAM.V4, d.Next.IPAM.V6 = d.V4.encode(), d.V6.encode()
	return d.Object.IPAM == nil || !reflect.DeepEqual(d.Object.IPAM, d.Next.IPAM)
}
