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
	// AllowsTags is whether slaves on the link may send VLAN tags: all networks are trunks, or
	// belong to another plugin, which manages its own slaves.
	AllowsTags bool
	// Trunk is whether one of the networks is a trunk; then all slaves of Patchbay on the link are.
	Trunk bool
	// SourceGuarded is whether frames with a source that is not a Pod's are dropped: all networks
	// request it.
	SourceGuarded bool
	// Err is the reason why the link cannot be on this node; Spec is incomplete then.
	Err error
}

// Plan has the links that the networks need on this node.
type Plan struct {
	// Links are the VLAN and VXLAN links, by name.
	Links []DesiredLink
	// DirectNICs are the NICs that networks use without a VLAN or VXLAN, by name.
	DirectNICs []DesiredLink
	// RequiredNICs are the names of those that must be up, in order.
	RequiredNICs []string
	// Refused are the networks that conflict with an older one, or request more than their link
	// has.
	Refused map[network.Ref]error

	// byID has the links and NICs of a plan by Desired.
	byID map[network.Link]*DesiredLink
}

// link returns the desired link or NIC of the identity, or nil.
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

// Desired plans the links for all networks. Of the state it uses only the NICs, and the names and
// identities of links that Patchbay does not manage.
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

// planner collects links from the networks, the oldest first.
type planner struct {
	state *State
	peers VTEPs
	plan  *Plan
	byID  map[network.Link]*DesiredLink
	// foreignNames are the names of links that Patchbay does not manage.
	foreignNames map[network.Link]string
}

// dropUnassigned refuses tenants' networks whose link was not assigned from a TenantConfig: they
// have no link and conflict with no other network, however old they are.
func (b *planner) dropUnassigned(networks []*network.Network) []*network.Network {
	return slices.DeleteFunc(slices.Clone(networks), func(n *network.Network) bool {
		err := network.CheckAssignment(n)
		if err != nil {
			b.plan.Refused[n.Ref] = err
		}
		return err != nil
	})
}

// addNetwork adds the network to its link, or plans a new link. Conflict is its conflict with older
// networks, which is the same on all nodes.
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

// startLink plans a new link on its NIC.
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

// checkUnused checks that no other link on this node has the link's name or identity.
func (b *planner) checkUnused(w *DesiredLink) error {
	if _, ok := b.state.nic(w.Name); ok {
		return fmt.Errorf("link name %s is the name of a NIC of this node: use another NetworkID: %w", w.Name, errTaken)
	}
	if name, ok := b.foreignNames[w.Identity]; ok {
		return fmt.Errorf("%s is link %s of this node, which Patchbay did not create: delete it, or use another VLAN or VXLAN ID: %w",
			w.Identity, name, errTaken)
	}
	return nil
}

// addNetwork adds a network to the link.
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

// needsRecreation reports whether the existing link has another NIC, or an address of another
// family, than desired: the kernel can change neither.
func (w *DesiredLink) needsRecreation(f *ObservedLink) bool {
	return f.Device != w.Device || w.Identity.VXLAN != 0 && f.Local.Is4() != w.Local.Is4()
}

// sortPlan returns the plan with its lists in order.
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

// usableNIC returns the NIC if links and Pods can use it.
func usableNIC(state *State, device string) (*NIC, error) {
	nic, ok := state.nic(device)
	if !ok {
		return nil, fmt.Errorf("%s: %w%s", device, errNoNIC, listNICs(state))
	}
	if nic.Master != "" && nic.MasterKind != "vrf" { // a VRF does not take frames from VLANs and slaves
		return nil, fmt.Errorf("%s: %w, the %s %s: use that as host_device, or remove the NIC from it",
			device, errBridgePort, nic.MasterKind, nic.Master)
	}
	return nic, nil
}

// listNICs lists the node's NICs for an error.
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

// Overhead of VXLAN in bytes: outer IP header, UDP, VXLAN and the inner Ethernet header (RFC 7348,
// 5).
const (
	vxlanOverhead4 = 20 + 8 + 8 + 14
	vxlanOverhead6 = 40 + 8 + 8 + 14
)

// placeOn completes the spec for the NIC. The link has the largest MTU that the NIC allows; the
// networks' own MTUs apply to their Pods.
func (s *Spec) placeOn(nic *NIC, peers VTEPs) error {
	s.MTU = nic.MTU
	if s.Identity.VXLAN == 0 {
		return nil
	}
	if len(nic.Addresses) == 0 {
		return fmt.Errorf("%s: %w: add one", nic.Name, errNoAddress)
	}
	s.Local = nic.Addresses[0].Addr()
	s.MTU -= vxlanOverhead6
	if s.Local.Is4() {
		s.MTU += vxlanOverhead6 - vxlanOverhead4
	}
	s.Peers = peers.reachableFrom(nic.Name, s.Local)
	return nil
}

// checkMTU checks that the network's MTU fits its link.
func checkMTU(n *network.Network, mtu int, nic *NIC) error {
	if n.MTU > mtu {
		return fmt.Errorf("%w: mtu %d must be at most %d, which NIC %s with mtu %d allows: increase the NIC's mtu or decrease the network's",
			errMTUTooLarge, n.MTU, mtu, nic.Name, nic.MTU)
	}
	return nil
}
