// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"net/netip"
	"slices"
)

// VXLANFilter selects the VXLAN packets that pass on this node. A packet with one of VNIs is
// received if both its Receiver and its Sender are listed. It is forwarded to one of VTEPs only
// from a Sender. Other VNIs belong to other programs and always pass. All lists are in order
// and without duplicates.
type VXLANFilter struct {
	// VNIs are the IDs of all managed VXLANs.
	VNIs []int
	// Receivers are the links on which this node receives each VNI.
	Receivers []Receiver
	// Senders are the other nodes' VTEPs, with the link that their packets arrive on.
	Senders []Sender
	// VTEPs are the VTEPs of all other nodes, also on NICs that this node does not have.
	VTEPs []netip.Addr
}

// Receiver is a VXLAN and the link that its packets arrive on.
type Receiver struct {
	VNI  int
	Link string
}

// Sender is another node's VTEP and the link that its packets arrive on.
type Sender struct {
	Link string
	VTEP netip.Addr
}

// Empty reports whether there is no VXLAN to filter.
func (f *VXLANFilter) Empty() bool { return len(f.VNIs) == 0 }

// Equal reports whether two filters are equal.
func (f *VXLANFilter) Equal(o *VXLANFilter) bool {
	return slices.Equal(f.VNIs, o.VNIs) && slices.Equal(f.Receivers, o.Receivers) &&
		slices.Equal(f.Senders, o.Senders) && slices.Equal(f.VTEPs, o.VTEPs)
}

// newVXLANFilter computes the filter of the plan, and of links whose change or deletion is deferred
// because Pods are on them. For a link whose peers are not known, the peers are those that the
// link sends to now.
func newVXLANFilter(p *Plan, state *State, peers VTEPs) VXLANFilter {
	var f VXLANFilter
	for i := range p.Links {
		w := &p.Links[i]
		if w.Identity.VXLAN == 0 {
			continue
		}
		f.VNIs = append(f.VNIs, w.Identity.VXLAN)
		f.VTEPs = append(f.VTEPs, peers[w.Device]...)
		if w.Err == nil {
			f.allowPeers(state, &w.Spec)
		}
	}
	for i := range state.Links {
		found := &state.Links[i]
		if !found.Managed || found.Identity.VXLAN == 0 {
			continue
		}
		w := p.link(found.Identity)
		if w == nil || w.Err != nil || w.Peers == nil || w.needsRecreation(found) {
			f.VNIs = append(f.VNIs, found.Identity.VXLAN)
			f.allowPeers(state, &found.Spec)
		}
	}
	slices.Sort(f.VNIs)
	f.VNIs = slices.Compact(f.VNIs)
	slices.SortFunc(f.Receivers, func(a, b Receiver) int { return cmp.Or(cmp.Compare(a.VNI, b.VNI), cmp.Compare(a.Link, b.Link)) })
	f.Receivers = slices.Compact(f.Receivers)
	slices.SortFunc(f.Senders, func(a, b Sender) int { return cmp.Or(cmp.Compare(a.Link, b.Link), a.VTEP.Compare(b.VTEP)) })
	f.Senders = slices.Compact(f.Senders)
	slices.SortFunc(f.VTEPs, netip.Addr.Compare)
	f.VTEPs = slices.Compact(f.VTEPs)
	return f
}

// allowPeers lets the peers of the VXLAN send to it.
func (f *VXLANFilter) allowPeers(state *State, s *Spec) {
	link := s.Device
	if nic, ok := state.nic(s.Device); ok && nic.MasterKind == "vrf" {
		link = nic.Master // packets of a VRF's port arrive on the VRF
	}
	f.Receivers = append(f.Receivers, Receiver{VNI: s.Identity.VXLAN, Link: link})
	for _, a := range s.Peers {
		f.Senders = append(f.Senders, Sender{Link: link, VTEP: a})
	}
	f.VTEPs = append(f.VTEPs, s.Peers...)
}
