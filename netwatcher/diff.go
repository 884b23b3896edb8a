// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Op is what a Change does.
type Op string

const (
	// OpSetUp sets the NIC Link.Device up.
	OpSetUp Op = "raise"
	// OpDelete removes our link Link.Name.
	OpDelete Op = "delete"
	// OpCreate makes Link, sealed and up.
	OpCreate Op = "create"
	// OpUpdate sets MTU and VTEP, seals and sets up the link Link.Name.
	OpUpdate Op = "update"
	// OpUpdatePeers adds Add to and takes Drop off the forwarding entries of Link.Name.
	OpUpdatePeers Op = "peer"
	// OpFlushLearned takes what Link.Name learned from Drop off its forwarding entries.
	OpFlushLearned Op = "forget"
	// OpFilterTags drops frames with a VLAN tag that slaves of the link or NIC Link.Name send.
	OpFilterTags Op = "untag"
	// OpAllowTags lets them pass again.
	OpAllowTags Op = "trunk"
)

// Change is one step towards the plan.
type Change struct {
	Op Op
	// Link is the target; in a Delete what is there, in an Update with the name
	// that the link has now.
	Link Spec
	// OnlyUnfinished, of a Delete: the link goes only if it still is. What was read of it may
	// be old, and it was finished for a Pod meanwhile.
	OnlyUnfinished bool
	// Add and Drop are VTEPs.
	Add, Drop []netip.Addr
}

// identity is the identity that the step is about.
func (c *Change) identity() network.Link {
	if c.Op == OpSetUp {
		return network.Link{Device: c.Link.Device}
	}
	return c.Link.Identity
}

// linkName of the link that changes.
func (c *Change) linkName() string {
	if c.Op == OpSetUp {
		return c.Link.Device
	}
	return c.Link.Name
}

// InUseFunc reports whether Pods are on a link, or anything else is.
type InUseFunc func(*ObservedLink) bool

// Diff returns the steps from what is there to the plan, deletions first since
// what is created may need a name or an identity of theirs. Nothing to do: nil.
func Diff(plan *Plan, state *State, used InUseFunc) []Change {
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

// mustDelete reports whether a link of ours is not wanted, or has what cannot be
// changed in place.
func mustDelete(f *ObservedLink, plan *Plan) bool {
	w := plan.link(f.Identity)
	if w == nil {
		return true
	}
	return w.Err == nil && (f.Name != w.Name || w.needsRecreation(f))
}

// linkChanges bring one link to what is wanted; f is nil when it is not there.
func linkChanges(w *DesiredLink, f *ObservedLink, used InUseFunc) []Change {
	if f == nil {
		return []Change{{Op: OpCreate, Link: w.Spec}}
	}
	var changes []Change
	target := w.Spec
	target.Name = f.Name // Pods may be on a link that an older network named
	if f.MTU > w.MTU && used(f) {
		target.MTU = f.MTU // would cut frames that Pods send
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
	// The kernel keeps an entry for as long as something is sent by it, not until the
	// sender is silent: what came from a stranger, or a node that left, does not go by itself.
	if unknown := difference(f.Learned, w.Peers); len(unknown) > 0 {
		changes = append(changes, Change{Op: OpFlushLearned, Link: target, Drop: unknown})
	}
	return changes
}

// difference are those of want that have lacks.
func difference(want, have []netip.Addr) []netip.Addr {
	var lacks []netip.Addr
	for _, a := range want {
		if !slices.Contains(have, a) {
			lacks = append(lacks, a)
		}
	}
	return lacks
}

// tagFilterChanges make links and NICs drop tagged frames of slaves unless a network is a trunk. On
// a NIC that no network of ours uses any more nothing of ours stays, once no Pod of ours is
// on it: its network may have been refused since. They come last: one that fails leaves a
// link that works.
func tagFilterChanges(plan *Plan, state *State, kept map[network.Link]*ObservedLink, used InUseFunc) []Change {
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
		case nic.TagsFiltered && w.shouldAllowTags(inUse):
			changes = append(changes, Change{Op: OpAllowTags, Link: link})
		case w != nil && w.Err == nil && !nic.TagsFiltered && !w.shouldAllowTags(inUse):
			changes = append(changes, Change{Op: OpFilterTags, Link: link})
		}
	}
	return changes
}

// shouldAllowTags reports whether a NIC that drops tags is to pass them again; w is nil when no
// network is on it.
func (w *DesiredLink) shouldAllowTags(used func() bool) bool {
	switch {
	case w == nil:
		return !used()
	case w.Err != nil || !w.AllowsTags:
		return false
	}
	return w.Trunk || !used()
}
