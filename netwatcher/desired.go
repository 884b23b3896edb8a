// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/network"
)

// Wanted is a link that networks need on this node.
type Wanted struct {
	Spec
	// Networks on it, the oldest first.
	Networks []network.Ref
	// Tagged says that slaves on it may send VLAN tags: all networks are trunks, or another
	// plugin's, whose slaves are its own matter.
	Tagged bool
	// Trunk says that one of the networks is a trunk; all slaves of ours on the link are then.
	Trunk bool
	// Guarded says that frames with a source that is no Pod's are dropped: all networks
	// want it.
	Guarded bool
	// Err says why it cannot be on this node; Spec is incomplete then.
	Err error
}

// Plan is what the networks need of this node.
type Plan struct {
	// Links by name.
	Links []Wanted
	// Cards are the NICs that networks use without a VLAN or VXLAN, by name.
	Cards []Wanted
	// NICs are the names of those that must be up, in order.
	NICs []string
	// Refused are the networks that an older one is in the way of, or that ask
	// for what their link cannot give.
	Refused map[network.Ref]error

	// byID finds links and cards in a plan of Desired's.
	byID map[network.Link]*Wanted
}

// Desired plans the links for all networks. It looks at what is there only for
// NICs and for names and identities that others have taken.
func Desired(networks []*network.Network, state *State, peers VTEPs) *Plan {
	b := &planner{
		state: state, peers: peers,
		plan:    &Plan{Refused: map[network.Ref]error{}},
		byID:    map[network.Link]*Wanted{},
		foreign: map[network.Link]string{},
	}
	for i := range state.Links {
		if f := &state.Links[i]; !f.Ours {
			b.foreign[f.Identity] = f.Name
		}
	}
	sorted := b.assigned(networks)
	slices.SortFunc(sorted, oldestFirst)
	conflicts := network.Conflicts(sorted)
	for _, n := range sorted {
		err := b.add(n, conflicts[n.Ref])
		if err != nil {
			b.plan.Refused[n.Ref] = err
		}
	}
	return b.finish()
}

// assigned refuses tenants' own wishes: they neither make links nor stand in the
// way of another network, however old they are.
func (b *planner) assigned(networks []*network.Network) []*network.Network {
	return slices.DeleteFunc(slices.Clone(networks), func(n *network.Network) bool {
		err := n.Assigned()
		if err != nil {
			b.plan.Refused[n.Ref] = err
		}
		return err != nil
	})
}

func oldestFirst(a, b *network.Network) int {
	switch {
	case a.Older(b):
		return -1
	case b.Older(a):
		return 1
	}
	return 0
}

// planner collects links while it goes through the networks by age.
type planner struct {
	state *State
	peers VTEPs
	plan  *Plan
	byID  map[network.Link]*Wanted
	// foreign are the names of others' links.
	foreign map[network.Link]string
}

// add finds the network's link or starts a new one. Conflict is what older
// networks have against it, on any node.
func (b *planner) add(n *network.Network, conflict error) error {
	id, ok := n.Link()
	if !ok {
		return nil
	}
	if conflict != nil {
		return conflictError{conflict}
	}
	nic, err := usable(b.state, n.Device)
	w, ok := b.byID[id]
	if !ok {
		w = &Wanted{Spec: Spec{Identity: id, Name: n.LinkName(), Device: n.Device}, Err: err}
		if err := b.start(w, nic); err != nil {
			return err
		}
	}
	if err := w.ride(n, nic); err != nil {
		return err
	}
	b.byID[id] = w
	return nil
}

// start places a new link on its NIC.
func (b *planner) start(w *Wanted, nic *NIC) error {
	if w.Identity.IsNIC() {
		if w.Err == nil {
			w.MTU = nic.MTU
		}
		return nil
	}
	if err := b.free(w); err != nil {
		return err
	}
	if w.Err == nil {
		w.Err = w.place(nic, b.peers)
	}
	return nil
}

// ride puts a network on a link.
func (w *Wanted) ride(n *network.Network, nic *NIC) error {
	if w.Err == nil {
		if err := fits(n, w.MTU, nic); err != nil {
			return err
		}
	}
	w.Tagged = (w.Tagged || len(w.Networks) == 0) && (n.Trunk || n.Delegates())
	w.Trunk = w.Trunk || n.Trunk
	w.Guarded = (w.Guarded || len(w.Networks) == 0) && n.SourceGuard
	w.Networks = append(w.Networks, n.Ref)
	return nil
}

// free checks that nothing else on this node has the link's name or identity.
func (b *planner) free(w *Wanted) error {
	if _, ok := b.state.nic(w.Name); ok {
		return fmt.Errorf("link name %s is a NIC of this node: use another NetworkID: %w", w.Name, ErrTaken)
	}
	if name, ok := b.foreign[w.Identity]; ok {
		return fmt.Errorf("%s is link %s of this node, which Patchbay did not make: remove it, or use another number: %w",
			w.Identity, name, ErrTaken)
	}
	return nil
}

// finish orders the plan.
func (b *planner) finish() *Plan {
	for id, w := range b.byID {
		if id.IsNIC() {
			b.plan.Cards = append(b.plan.Cards, *w)
		} else {
			b.plan.Links = append(b.plan.Links, *w)
		}
		if w.Err == nil {
			b.plan.NICs = append(b.plan.NICs, w.Device)
		}
	}
	b.plan.byID = b.byID
	byName := func(a, b Wanted) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(b.plan.Links, byName)
	slices.SortFunc(b.plan.Cards, byName)
	slices.Sort(b.plan.NICs)
	b.plan.NICs = slices.Compact(b.plan.NICs)
	return b.plan
}
