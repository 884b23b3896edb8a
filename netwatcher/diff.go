// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Op is the operation of a Change. Its values are labels of a metric.
type Op string

const (
	// OpSetUp sets the NIC Link.Device up.
	OpSetUp Op = "set-up"
	// OpDelete deletes the managed link Link.Name.
	OpDelete Op = "delete"
	// OpCreate creates Link without addresses, and sets it up.
	OpCreate Op = "create"
	// OpUpdate sets MTU and VTEP of the link Link.Name, removes its addresses and sets it up.
	OpUpdate Op = "update"
	// OpUpdatePeers adds Add to the default forwarding entries of Link.Name, and removes Drop.
	OpUpdatePeers Op = "update-peers"
	// OpFlushLearned removes the forwarding entries that Link.Name learned from Drop.
	OpFlushLearned Op = "flush-learned"
	// OpFilterTags drops frames with a VLAN tag that slaves of the link or NIC Link.Name send.
	OpFilterTags Op = "filter-tags"
	// OpAllowTags undoes OpFilterTags.
	OpAllowTags Op = "allow-tags"
)

// Change is one operation towards the plan.
type Change struct {
	Op Op
	// Link is the desired link; the existing one for OpDelete. For OpUpdate it has the link's
	// present name.
	Link Spec
	// OnlyUnfinished, for OpDelete, deletes the link only if it is still unfinished: it may have been
	// finished for a Pod after it was read.
	OnlyUnfinished bool
	// Add and Drop are VTEPs.
	Add, Drop []netip.Addr
}

// identity is the identity of the link or NIC that changes.
func (c *Change) identity() network.Link {
	if c.Op == OpSetUp {
		return network.Link{Device: c.Link.Device}
	}
	return c.Link.Identity
}

// linkName is the name of the link or NIC that changes.
func (c *Change) linkName() string {
	if c.Op == OpSetUp {
		return c.Link.Device
	}
	return c.Link.Name
}

// usageFunc reports whether Pods or other links are on a link.
type usageFunc func(*ObservedLink) bool

// Diff returns the changes from the state to the plan; nil if there are none. Deletions are first:
// a new link may need the name or the identity of a deleted one.
func Diff(plan *Plan, state *State, used usageFunc) []Change {
	var first, then []Change
	for _, name := range plan.RequiredNICs {
		if nic, ok := state.nic(name); ok && !nic.Up {
			first = append(first, Change{Op: OpSetUp, Link: Spec{Device: name}})
		}
	}
	kept := map[network.Link]*ObservedLink{}
	for i := range state.Links {
		f := &state.Links[i]
		switch {
		case !f.Managed:
		case f.Unfinished || mustDelete(f, plan) && !used(f):
			first = append(first, Change{Op: OpDelete, Link: f.Spec, OnlyUnfinished: f.Unfinished})
		default:
			kept[f.Identity] = f
		}
	}
	for i := range plan.Links {
		w := &plan.Links[i]
		if w.Err == nil {
			then = append(then, linkChanges(w, kept[w.Identity], used)...)
		}
	}
	then = append(then, tagFilterChanges(plan, state, kept, used)...)
	return append(first, then...)
}

// mustDelete reports whether no network needs the managed link, or it differs from the plan in
// something that cannot be changed.
func mustDelete(f *ObservedLink, plan *Plan) bool {
	w := plan.link(f.Identity)
	if w == nil {
		return true
	}
	return w.Err == nil && (f.Name != w.Name || w.needsRecreation(f))
}

// linkChanges returns the changes of one link; f is the existing link or nil.
func linkChanges(w *DesiredLink, f *ObservedLink, used usageFunc) []Change {
	if f == nil {
		return []Change{{Op: OpCreate, Link: w.Spec}}
	}
	var changes []Change
	target := w.Spec
	target.Name = f.Name // Pods may be on a link that another network named
	if f.MTU > w.MTU && used(f) {
		target.MTU = f.MTU // a smaller MTU would drop frames of Pods
	}
	if w.needsRecreation(f) {
		target.Device, target.Local, target.Peers = f.Device, f.Local, nil
	}
	if f.MTU != target.MTU || f.Local != target.Local || !f.Up || !f.HostUnreachable {
		changes = append(changes, Change{Op: OpUpdate, Link: target})
	}
	if target.Peers == nil {
		return changes
	}
	add, drop := difference(w.Peers, f.Peers), difference(f.Peers, w.Peers)
	if len(add)+len(drop) > 0 {
		changes = append(changes, Change{Op: OpUpdatePeers, Link: target, Add: add, Drop: drop})
	}
	// The kernel keeps an entry as long as frames are sent by it, even if its VTEP is silent: an
	// entry of an unknown host, or of a node that left, does not expire.
	if unknown := difference(f.Learned, w.Peers); len(unknown) > 0 {
		changes = append(changes, Change{Op: OpFlushLearned, Link: target, Drop: unknown})
	}
	return changes
}

// difference returns the addresses of want that are not in have.
func difference(want, have []netip.Addr) []netip.Addr {
	var missing []netip.Addr
	for _, a := range want {
		if !slices.Contains(have, a) {
			missing = append(missing, a)
		}
	}
	return missing
}

// tagFilterChanges returns the changes that make links and NICs drop tagged frames of slaves, unless
// a network is a trunk. The filter of a NIC that no network uses is removed when no Pod is on
// the NIC: its network may have been refused. The changes are last: if one fails, the link
// works without the filter.
func tagFilterChanges(plan *Plan, state *State, kept map[network.Link]*ObservedLink, used usageFunc) []Change {
	var changes []Change
	for i := range plan.Links {
		w := &plan.Links[i]
		f := kept[w.Identity]
		if w.Err != nil || w.AllowsTags || f != nil && f.TagsFiltered {
			continue
		}
		link := Spec{Identity: w.Identity, Name: w.Name, Device: w.Device}
		if f != nil {
			link.Name, link.Device = f.Name, f.Device
		}
		changes = append(changes, Change{Op: OpFilterTags, Link: link})
	}
	for i := range state.NICs {
		nic := &state.NICs[i]
		id := network.Link{Device: nic.Name}
		link := Spec{Identity: id, Name: nic.Name, Device: nic.Name}
		w := plan.link(id)
		inUse := func() bool { return used(&ObservedLink{Spec: link}) }
		switch {
		case nic.TagsFiltered && shouldAllowTags(w, inUse):
			changes = append(changes, Change{Op: OpAllowTags, Link: link})
		case w != nil && w.Err == nil && !nic.TagsFiltered && !shouldAllowTags(w, inUse):
			changes = append(changes, Change{Op: OpFilterTags, Link: link})
		}
	}
	return changes
}

// shouldAllowTags reports whether the tag filter of a NIC should be removed; w is nil if no network
// uses the NIC.
func shouldAllowTags(w *DesiredLink, used func() bool) bool {
	switch {
	case w == nil:
		return !used()
	case w.Err != nil || !w.AllowsTags:
		return false
	}
	return w.Trunk || !used()
}
