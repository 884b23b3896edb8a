// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"slices"

	"github.com/patchbay-cni/patchbay/network"
)

// Op is what a Change does.
type Op string

const (
	// Raise sets the NIC Link.Device up.
	Raise Op = "raise"
	// Delete removes our link Link.Name.
	Delete Op = "delete"
	// Create makes Link, sealed and up.
	Create Op = "create"
	// Update sets MTU and VTEP, seals and sets up the link Link.Name.
	Update Op = "update"
	// Peer adds Add to and takes Drop off the forwarding entries of Link.Name.
	Peer Op = "peer"
	// Forget takes what Link.Name learned from Drop off its forwarding entries.
	Forget Op = "forget"
	// Untag drops frames with a VLAN tag that slaves of the link or NIC Link.Name send.
	Untag Op = "untag"
	// Trunk lets them pass again.
	Trunk Op = "trunk"
)

// Change is one step towards the plan.
type Change struct {
	Op Op
	// Link is the target; in a Delete what is there, in an Update with the name
	// that the link has now.
	Link Spec
	// HalfMade, of a Delete: the link goes only if it still is. What was read of it may
	// be old, and it was finished for a Pod meanwhile.
	HalfMade bool
	// Add and Drop are VTEPs.
	Add, Drop []netip.Addr
}

// id is the identity that the step is about.
func (c *Change) id() network.Link {
	if c.Op == Raise {
		return network.Link{Device: c.Link.Device}
	}
	return c.Link.Identity
}

// name of the link that changes.
func (c *Change) name() string {
	if c.Op == Raise {
		return c.Link.Device
	}
	return c.Link.Name
}

// Used reports whether Pods are on a link, or anything else is.
type Used func(*Found) bool

// Diff returns the steps from what is there to the plan, deletions first since
// what is created may need a name or an identity of theirs. Nothing to do: nil.
func Diff(plan *Plan, state *State, used Used) []Change {
	var first, then []Change
	for _, name := range plan.NICs {
		if nic, ok := state.nic(name); ok && !nic.Up {
			first = append(first, Change{Op: Raise, Link: Spec{Device: name}})
		}
	}
	kept := map[network.Link]*Found{}
	for i := range state.Links {
		f := &state.Links[i]
		switch {
		case !f.Ours:
		case f.HalfMade || outdated(f, plan) && !used(f):
			first = append(first, Change{Op: Delete, Link: f.Spec, HalfMade: f.HalfMade})
		default:
			kept[f.Identity] = f
		}
	}
	for i := range plan.Links {
		w := &plan.Links[i]
		if w.Err == nil {
			then = append(then, steps(w, kept[w.Identity], used)...)
		}
	}
	then = append(then, tagSteps(plan, state, kept, used)...)
	return append(first, then...)
}

// outdated reports whether a link of ours is not wanted, or has what cannot be
// changed in place.
func outdated(f *Found, plan *Plan) bool {
	w := plan.link(f.Identity)
	if w == nil {
		return true
	}
	return w.Err == nil && (f.Name != w.Name || w.elsewhere(f))
}

// steps bring one link to what is wanted; f is nil when it is not there.
func steps(w *Wanted, f *Found, used Used) []Change {
	if f == nil {
		return []Change{{Op: Create, Link: w.Spec}}
	}
	var changes []Change
	target := w.Spec
	target.Name = f.Name // Pods may be on a link that an older network named
	if f.MTU > w.MTU && used(f) {
		target.MTU = f.MTU // would cut frames that Pods send
	}
	if w.elsewhere(f) {
		target.Device, target.Local, target.Peers = f.Device, f.Local, nil
	}
	if f.MTU != target.MTU || f.Local != target.Local || !f.Up || !f.Sealed {
		changes = append(changes, Change{Op: Update, Link: target})
	}
	if target.Peers == nil {
		return changes
	}
	add, drop := missing(w.Peers, f.Peers), missing(f.Peers, w.Peers)
	if len(add)+len(drop) > 0 {
		changes = append(changes, Change{Op: Peer, Link: target, Add: add, Drop: drop})
	}
	// The kernel keeps an entry for as long as something is sent by it, not until the
	// sender is silent: what came from a stranger, or a node that left, does not go by itself.
	if unknown := missing(f.Learned, w.Peers); len(unknown) > 0 {
		changes = append(changes, Change{Op: Forget, Link: target, Drop: unknown})
	}
	return changes
}

// missing are those of want that have lacks.
func missing(want, have []netip.Addr) []netip.Addr {
	var lacks []netip.Addr
	for _, a := range want {
		if !slices.Contains(have, a) {
			lacks = append(lacks, a)
		}
	}
	return lacks
}

// tagSteps make links and NICs drop tagged frames of slaves unless a network is a trunk. On
// a NIC that no network of ours uses any more nothing of ours stays, once no Pod of ours is
// on it: its network may have been refused since. They come last: one that fails leaves a
// link that works.
func tagSteps(plan *Plan, state *State, kept map[network.Link]*Found, used Used) []Change {
	var changes []Change
	for i := range plan.Links {
		w := &plan.Links[i]
		f := kept[w.Identity]
		if w.Err != nil || w.Tagged || f != nil && f.Untagged {
			continue
		}
		link := Spec{Identity: w.Identity, Name: w.Name, Device: w.Device}
		if f != nil {
			link.Name, link.Device = f.Name, f.Device
		}
		changes = append(changes, Change{Op: Untag, Link: link})
	}
	for i := range state.NICs {
		nic := &state.NICs[i]
		id := network.Link{Device: nic.Name}
		link := Spec{Identity: id, Name: nic.Name, Device: nic.Name}
		w := plan.link(id)
		inUse := func() bool { return used(&Found{Spec: link}) }
		switch {
		case nic.Untagged && w.passesTags(inUse):
			changes = append(changes, Change{Op: Trunk, Link: link})
		case w != nil && w.Err == nil && !nic.Untagged && !w.passesTags(inUse):
			changes = append(changes, Change{Op: Untag, Link: link})
		}
	}
	return changes
}

// passesTags reports whether a NIC that drops tags is to pass them again; w is nil when no
// network is on it.
func (w *Wanted) passesTags(used func() bool) bool {
	switch {
	case w == nil:
		return !used()
	case w.Err != nil || !w.Tagged:
		return false
	}
	return w.Trunk || !used()
}
