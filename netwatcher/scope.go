// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"maps"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// scope is what one round works on.
type scope struct {
	networks []*network.Network
	plan     *Plan
	state    *State
	inUse    InUseFunc
	// filter is for the plan's links and those that are there.
	filter VXLANFilter
	// refusedVTEPs are VTEPs that other nodes claim, and that do not count.
	refusedVTEPs VTEPs
	// statusExists is false when this node's object is known to be missing.
	statusExists bool
	// incomplete says that there may be networks that are not known.
	incomplete bool
}

// withNetwork adds a network that is not among nets, or is newer than there.
func withNetwork(nets []*network.Network, extra *network.Network) []*network.Network {
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

// keepUnknown keeps what networks that are not known may need.
func (in *scope) keepUnknown() {
	used := in.inUse
	in.inUse = func(f *ObservedLink) bool { return mustDelete(f, in.plan) || used(f) }
}

// dropResolved drops the failures of what is as planned by now: a Pod's ADD made the link
// between the look and the step. State is that after the steps.
func (in *scope) dropResolved(failed Failures) {
	if len(failed) == 0 {
		return
	}
	left := map[network.Link]bool{}
	for _, c := range Diff(in.plan, in.state, in.inUse) {
		left[c.identity()] = true
	}
	maps.DeleteFunc(failed, func(id network.Link, _ error) bool {
		if nic, ok := in.state.nic(id.Device); id.IsNIC() && (!ok || !nic.Up) {
			return false
		}
		return !left[id]
	})
}

// linkByNetwork are the networks that were not refused.
func (in *scope) linkByNetwork() map[network.Ref]network.Link {
	riders := map[network.Ref]network.Link{}
	for _, n := range in.networks {
		if id, ok := n.Link(); ok && in.plan.Refused[n.Ref] == nil {
			riders[n.Ref] = id
		}
	}
	return riders
}

// guardedLinks are the links of ours that are there, and what becomes of them.
func (in *scope) guardedLinks(current bool) []GuardedLink {
	var links []GuardedLink
	for i := range in.state.Links {
		f := &in.state.Links[i]
		if !f.Managed || f.Unfinished {
			continue
		}
		w := in.plan.link(f.Identity)
		wanted := w != nil && w.SourceGuarded
		// A link that no network needs has Pods on it: theirs may have been refused since.
		if wanted || w == nil || !current || in.incomplete {
			links = append(links, GuardedLink{Name: f.Name, MAC: f.MAC, OnlyIfGuarded: !wanted})
		}
	}
	return links
}

// rejection returns why the plan has no link for the network.
func (in *scope) rejection(id network.Link, ref network.Ref) error {
	if err := in.plan.Refused[ref]; err != nil {
		return err
	}
	if w := in.plan.link(id); w != nil {
		return w.Err
	}
	return nil
}
