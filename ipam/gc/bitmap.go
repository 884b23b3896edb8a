// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Drift counts the wrong bits of a bitmap.
type Drift struct {
	// Freed bits were set although their addresses were not covered; Marked bits were clear
	// although their addresses were covered.
	Freed, Marked int64
}

// Findings are the results of RepairBitmap.
type Findings struct {
	Drift
	// Conflicts are the addresses that have two owners, in order.
	Conflicts []Conflict
}

// Conflict is an address with two owners.
type Conflict struct {
	Addr netip.Addr
	// Owners are at least two, in order.
	Owners []Owner
}

// Owner is a DanmEp that has an address, or a node whose entry covers it, for example for a Pod that
// is starting or stopping.
type Owner struct {
	// Namespace, Pod and PodUID name the DanmEp's Pod; empty for an entry.
	Namespace, Pod, PodUID string
	// Endpoint is the DanmEp's name; empty for an entry.
	Endpoint string
	// Node is the name of the node.
	Node string
}

// compare orders owners.
func (o Owner) compare(other Owner) int {
	return cmp.Or(cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Pod, other.Pod),
		cmp.Compare(o.Endpoint, other.Endpoint), cmp.Compare(o.Node, other.Node))
}

// errReadAgain means that a second read is needed, because an address may have changed its owner
// between the read of the object and the list of the DanmEps.
var errReadAgain = errors.New("read again")

// RepairBitmap compares the bitmaps with entries and DanmEps: it clears the bits of uncovered
// addresses, sets those of covered ones, and reports the addresses that have two owners. After
// concurrent claims it starts again. status.ErrUnknownState means that an entry is unreadable and
// that no bit was cleared; status.ErrNotFound means that the network, or its UID, does not exist
// any more.
func (c *Collector) RepairBitmap(ctx context.Context, key network.Key) (Findings, error) {
	var found Findings
	var unknown error
	var listed map[string]bool // the DanmEps that existed before the object was read
	err := c.change(ctx, "repair bitmap of", key, func(d *draft) error {
		d.markCovered()
		freeErr := d.FreeUncovered(noUse)
		conflicts, unsure := d.conflicts(func(uid string) bool { return listed[uid] })
		first := listed == nil
		if listed = d.listed(); unsure && first {
			return errReadAgain
		}
		found, unknown = Findings{Drift{d.Freed, d.Marked}, conflicts}, freeErr
		return nil
	})
	if err != nil {
		return Findings{}, err // nothing was written
	}
	return found, unknown
}

// NeedsRepair reports whether RepairBitmap may find something. The object and the endpoints may be
// from caches, which may lag.
func NeedsRepair(o *status.Object, endpoints []status.Endpoint) (bool, error) {
	if o.IPAM == nil {
		return false, nil
	}
	d, err := newDraft(o, endpoints, Config{}.withDefaults().Reserved)
	if err != nil {
		return false, err
	}
	d.markCovered()
	err = d.FreeUncovered(noUse)
	conflicts, _ := d.conflicts(func(string) bool { return true })
	return d.Marked+d.Freed > 0 || len(conflicts) > 0, err
}

// markCovered sets the clear bits of addresses that an entry or a DanmEp covers.
func (d *draft) markCovered() { d.MarkCovered(nil, noUse) }

// listed returns the UIDs of the DanmEps.
func (d *draft) listed() map[string]bool {
	uids := make(map[string]bool, len(d.endpoints))
	for _, e := range d.endpoints {
		uids[e.UID] = true
	}
	return uids
}

// conflicts returns the addresses that have two owners. Two DanmEps of one list, and two entries of
// one object, exist at the same time. An entry and another node's DanmEp need not: between the read
// of the object and the list, the node may have released the address, and the other may have claimed
// it. They do if the DanmEp existed before the object was read, as before reports; otherwise
// conflicts leaves the entry out and returns unsure.
func (d *draft) conflicts(before func(uid string) bool) (found []Conflict, unsure bool) {
	if d.Recovering() || d.Object.Network != nil && d.Object.Network.Delegates() {
		return nil, false // not all owners are known yet, or another plugin assigns the addresses
	}
	owners := map[netip.Addr]*contenders{}
	of := func(a netip.Addr) *contenders {
		if owners[a] == nil {
			owners[a] = &contenders{}
		}
		return owners[a]
	}
	for _, e := range d.endpoints {
		if e.Of(d.Object.UID) {
			for _, a := range e.Addrs() {
				if c := of(a); !slices.ContainsFunc(c.endpoints, func(o status.Endpoint) bool { return sameInterface(e, o) }) {
					c.endpoints = append(c.endpoints, e)
				}
			}
		}
	}
	for _, o := range d.Others() {
		if o.Err != nil || !status.IsNode(o.Name) {
			continue // it is not a node's entry
		}
		for _, a := range o.Addrs() {
			if o.IsQuarantined(a) {
				continue // the other machine that has it may be another Pod
			}
			of(a).nodes = append(of(a).nodes, o.Name)
		}
	}
	for a, c := range owners {
		all, open := c.owners(before)
		unsure = unsure || open
		if len(all) > 1 {
			found = append(found, Conflict{a, all})
		}
	}
	slices.SortFunc(found, func(a, b Conflict) int { return a.Addr.Compare(b.Addr) })
	return found, unsure
}

// sameInterface reports whether two DanmEps belong to one interface: while the controller moves a
// DanmEp to another namespace, both exist for a short time.
func sameInterface(a, b status.Endpoint) bool {
	return a.ID != "" && a.ID == b.ID && a.Node == b.Node && a.PodUID == b.PodUID
}

// contenders are the DanmEps and the nodes (with their entries) that have one address.
type contenders struct {
	endpoints []status.Endpoint
	nodes     []string
}

// owners returns the owners that have the address at the same time, in order.
func (c *contenders) owners(before func(uid string) bool) (all []Owner, unsure bool) {
	for _, e := range c.endpoints {
		all = append(all, Owner{e.Namespace, e.Pod, e.PodUID, e.Name, e.Node})
	}
	for _, node := range c.nodes {
		// The DanmEp and the entry of the same node overlap for a short time.
		if slices.ContainsFunc(c.endpoints, func(e status.Endpoint) bool { return e.Node == node }) {
			continue
		}
		if len(c.nodes) == 1 && len(c.endpoints) > 0 && !slices.ContainsFunc(c.endpoints, func(e status.Endpoint) bool { return before(e.UID) }) {
			unsure = true
			continue
		}
		all = append(all, Owner{Node: node})
	}
	slices.SortFunc(all, Owner.compare)
	return all, unsure
}
