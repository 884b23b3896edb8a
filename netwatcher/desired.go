// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// DesiredLink is a link that networks need on this node.
type DesiredLink struct {
	Spec
	// Networks on it, the oldest first.
	Networks []network.Ref
	// AllowsTags says that slaves on it may send VLAN tags: all networks are trunks, or another
	// plugin's, whose slaves are its own matter.
	AllowsTags bool
	// Trunk says that one of the networks is a trunk; all slaves of ours on the link are then.
	Trunk bool
	// SourceGuarded says that frames with a source that is no Pod's are dropped: all networks
	// want it.
	SourceGuarded bool
	// Err says why it cannot be on this node; Spec is incomplete then.
	Err error
}

// Plan is what the networks need of this node.
type Plan struct {
	// Links by name.
	Links []DesiredLink
	// DirectNICs are the NICs that networks use without a VLAN or VXLAN, by name.
	DirectNICs []DesiredLink
	// RequiredNICs are the names of those that must be up, in order.
	RequiredNICs []string
	// Refused are the networks that an older one is in the way of, or that ask
	// for what their link cannot give.
	Refused map[network.Ref]error

	// byID finds links and cards in a plan of Desired's.
	byID map[network.Link]*DesiredLink
}

// link finds a wanted link or card.
func (p *Plan) link(id network.Link) *DesiredLink {
	if p.byID != nil {
		return p.byID[id]
	}
	for i := range p.Links {
		if p.Links[i].Identity == id {
			return &p.Links[i]
		}
	}
	return nil
}

// Desired plans the links for all networks. It looks at what is there only for
// NICs and for names and identities that others have taken.
func Desired(networks []*network.Network, state *State, peers VTEPs) *Plan {
	b := &planner{
		state: state, peers: peers,
		plan:         &Plan{Refused: map[network.Ref]error{}},
		byID:         map[network.Link]*DesiredLink{},
		foreignNames: map[network.Link]string{},
	}
	for i := range state.Links {
		if f := &state.Links[i]; !f.Managed {
			b.foreignNames[f.Identity] = f.Name
		}
	}
	sorted := b.dropUnassigned(networks)
	slices.SortFunc(sorted, oldestFirst)
	conflicts := network.Conflicts(sorted)
	for _, n := range sorted {
		err := b.addNetwork(n, conflicts[n.Ref])
		if err != nil {
			b.plan.Refused[n.Ref] = err
		}
	}
	return b.sortPlan()
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
	byID  map[network.Link]*DesiredLink
	// foreignNames are the names of others' links.
	foreignNames map[network.Link]string
}

// dropUnassigned refuses tenants' own wishes: they neither make links nor stand in the
// way of another network, however old they are.
func (b *planner) dropUnassigned(networks []*network.Network) []*network.Network {
	return slices.DeleteFunc(slices.Clone(networks), func(n *network.Network) bool {
		err := n.CheckAssignment()
		if err != nil {
			b.plan.Refused[n.Ref] = err
		}
		return err != nil
	})
}

// addNetwork finds the network's link or starts a new one. Conflict is what older
// networks have against it, on any node.
func (b *planner) addNetwork(n *network.Network, conflict error) error {
	id, ok := n.Link()
	if !ok {
		return nil
	}
	if conflict != nil {
		return conflictError{conflict}
	}
	nic, err := usableNIC(b.state, n.Device)
	w, ok := b.byID[id]
	if !ok {
		w = &DesiredLink{Spec: Spec{Identity: id, Name: n.LinkName(), Device: n.Device}, Err: err}
		if err := b.startLink(w, nic); err != nil {
			return err
		}
	}
	if err := w.addNetwork(n, nic); err != nil {
		return err
	}
	b.byID[id] = w
	return nil
}

// startLink places a new link on its NIC.
func (b *planner) startLink(w *DesiredLink, nic *NIC) error {
	if w.Identity.IsNIC() {
		if w.Err == nil {
			w.MTU = nic.MTU
		}
		return nil
	}
	if err := b.checkUnused(w); err != nil {
		return err
	}
	if w.Err == nil {
		w.Err = w.placeOn(nic, b.peers)
	}
	return nil
}

// checkUnused checks that nothing else on this node has the link's name or identity.
func (b *planner) checkUnused(w *DesiredLink) error {
	if _, ok := b.state.nic(w.Name); ok {
		return fmt.Errorf("link name %s is a NIC of this node: use another NetworkID: %w", w.Name, ErrTaken)
	}
	if name, ok := b.foreignNames[w.Identity]; ok {
		return fmt.Errorf("%s is link %s of this node, which Patchbay did not make: remove it, or use another number: %w",
			w.Identity, name, ErrTaken)
	}
	return nil
}

// addNetwork puts a network on a link.
func (w *DesiredLink) addNetwork(n *network.Network, nic *NIC) error {
	if w.Err == nil {
		if err := checkMTU(n, w.MTU, nic); err != nil {
			return err
		}
	}
	w.AllowsTags = (w.AllowsTags || len(w.Networks) == 0) && (n.Trunk || n.Delegates())
	w.Trunk = w.Trunk || n.Trunk
	w.SourceGuarded = (w.SourceGuarded || len(w.Networks) == 0) && n.SourceGuard
	w.Networks = append(w.Networks, n.Ref)
	return nil
}

// needsRecreation reports whether the link is on another NIC, or receives in another
// family, than it should: the kernel changes neither in place.
func (w *DesiredLink) needsRecreation(f *ObservedLink) bool {
	return f.Device != w.Device || w.Identity.VXLAN != 0 && f.Local.Is4() != w.Local.Is4()
}

// sortPlan orders the plan.
func (b *planner) sortPlan() *Plan {
	for id, w := range b.byID {
		if id.IsNIC() {
			b.plan.DirectNICs = append(b.plan.DirectNICs, *w)
		} else {
			b.plan.Links = append(b.plan.Links, *w)
		}
		if w.Err == nil {
			b.plan.RequiredNICs = append(b.plan.RequiredNICs, w.Device)
		}
	}
	b.plan.byID = b.byID
	byName := func(a, b DesiredLink) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(b.plan.Links, byName)
	slices.SortFunc(b.plan.DirectNICs, byName)
	slices.Sort(b.plan.RequiredNICs)
	b.plan.RequiredNICs = slices.Compact(b.plan.RequiredNICs)
	return b.plan
}

// usableNIC finds the NIC that links or Pods are to be put on.
func usableNIC(state *State, device string) (*NIC, error) {
	nic, ok := state.nic(device)
	if !ok {
		return nil, fmt.Errorf("%s: %w%s", device, ErrNoNIC, listNICs(state))
	}
	if nic.Master != "" && nic.MasterKind != "vrf" { // a VRF takes no frame from VLANs and slaves
		return nil, fmt.Errorf("%s: %w, the %s %s: name that one as host_device, or take the NIC out of it",
			device, ErrBridgePort, nic.MasterKind, nic.Master)
	}
	return nic, nil
}

// listNICs lists what could have been meant.
func listNICs(state *State) string {
	var names []string
	for i := range state.NICs {
		if state.NICs[i].isReported() {
			names = append(names, state.NICs[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (it has " + strings.Join(names, ", ") + ")"
}

// Bytes that VXLAN takes of the NIC's MTU: outer IP header, UDP, VXLAN and the
// inner Ethernet header (RFC 7348, 5).
const (
	vxlanOverhead4 = 20 + 8 + 8 + 14
	vxlanOverhead6 = 40 + 8 + 8 + 14
)

// placeOn completes the spec on the NIC. The link's MTU is what the NIC leaves, for
// every network that rides on it; theirs is their Pods' matter.
func (s *Spec) placeOn(nic *NIC, peers VTEPs) error {
	s.MTU = nic.MTU
	if s.Identity.VXLAN == 0 {
		return nil
	}
	if len(nic.Addresses) == 0 {
		return fmt.Errorf("%s: %w: give it one", nic.Name, ErrNoAddress)
	}
	s.Local = nic.Addresses[0].Addr()
	s.MTU -= vxlanOverhead6
	if s.Local.Is4() {
		s.MTU += vxlanOverhead6 - vxlanOverhead4
	}
	s.Peers = peers.reachableFrom(nic.Name, s.Local)
	return nil
}

// checkMTU compares the MTU that a network asks for with its link's.
func checkMTU(n *network.Network, mtu int, nic *NIC) error {
	if n.MTU > mtu {
		return fmt.Errorf("%w: mtu %d, but %d is what %s with %d leaves: raise the NIC's or lower the network's",
			ErrMTUTooLarge, n.MTU, mtu, nic.Name, nic.MTU)
	}
	return nil
}
