// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"maps"

	"github.com/patchbay-cni/patchbay/network"
)

// input is what one round works on.
type input struct {
	nets  []*network.Network
	plan  *Plan
	state *State
	used  Used
	// filter is for the plan's links and those that are there.
	filter Filter
	// refused are VTEPs that other nodes claim, and that do not count.
	refused VTEPs
	// reported is false when this node's object is known to be missing.
	reported bool
	// partly says that there may be networks that are not known.
	partly bool
}

// with adds a network that is not among nets, or is newer than there.
func with(nets []*network.Network, extra *network.Network) []*network.Network {
	if extra == nil {
		return nets
	}
	all := []*network.Network{extra}
	for _, n := range nets {
		switch {
		case n.UID != extra.UID:
			all = append(all, n)
		case n.Generation > extra.Generation:
			all[0] = n
		}
	}
	return all
}

// spare keeps what networks that are not known may need.
func (in *input) spare() {
	used := in.used
	in.used = func(f *Found) bool { return outdated(f, in.plan) || used(f) }
}

// settled drops the failures of what is as planned by now: a Pod's ADD made the link
// between the look and the step. State is that after the steps.
func (in *input) settled(failed Failures) {
	if len(failed) == 0 {
		return
	}
	left := map[network.Link]bool{}
	for _, c := range Diff(in.plan, in.state, in.used) {
		left[c.id()] = true
	}
	maps.DeleteFunc(failed, func(id network.Link, _ error) bool {
		if nic, ok := in.state.nic(id.Device); id.IsNIC() && (!ok || !nic.Up) {
			return false
		}
		return !left[id]
	})
}

// riders are the networks that were not refused.
func (in *input) riders() map[network.Ref]network.Link {
	riders := map[network.Ref]network.Link{}
	for _, n := range in.nets {
		if id, ok := n.Link(); ok && in.plan.Refused[n.Ref] == nil {
			riders[n.Ref] = id
		}
	}
	return riders
}

// guarded are the links of ours that are there, and what becomes of them.
func (in *input) guarded(current bool) []GuardedLink {
	var links []GuardedLink
	for i := range in.state.Links {
		f := &in.state.Links[i]
		if !f.Ours || f.HalfMade {
			continue
		}
		w := in.plan.link(f.Identity)
		wanted := w != nil && w.Guarded
		// A link that no network needs has Pods on it: theirs may have been refused since.
		if wanted || w == nil || !current || in.partly {
			links = append(links, GuardedLink{Name: f.Name, MAC: f.MAC, Keep: !wanted})
		}
	}
	return links
}

// rejected returns why the plan has no link for the network.
func (in *input) rejected(id network.Link, ref network.Ref) error {
	if err := in.plan.Refused[ref]; err != nil {
		return err
	}
	if w := in.plan.link(id); w != nil {
		return w.Err
	}
	return nil
}
