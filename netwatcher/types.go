// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// NIC is a link of the node that Patchbay did not make, and on which it may put
// links or Pods: a card, a bond, or what else a network names as its host_device.
type NIC struct {
	// Name of the link.
	Name string
	// Kind is the kernel's link kind, empty for a card.
	Kind string
	// MAC in the colon notation.
	MAC string
	// MTU in bytes.
	MTU int
	// Driver of the device, empty when it has none.
	Driver string
	// Speed in Mbit/s, 0 when the device does not say.
	Speed int
	// Up says that the link is set up.
	Up bool
	// NoCarrier says that it is set up and nothing is at the cable's other end.
	NoCarrier bool
	// Master is the bridge, bond or other link that this one is a port of.
	Master string
	// MasterKind is the kernel's link kind of Master.
	MasterKind string
	// Addresses are the global ones, in the kernel's order.
	Addresses []netip.Prefix
	// TagsFiltered says that no slave on it can send frames with a VLAN tag.
	TagsFiltered bool
	// VF says that it is a virtual function of a card: it comes and goes with Pods.
	VF bool
	// TotalVFs and NumVFs are the virtual functions that a card can make and has.
	TotalVFs, NumVFs int
}

// Spec describes a VLAN or VXLAN link.
type Spec struct {
	// Identity is never a NIC's.
	Identity network.Link
	// Name on the host.
	Name string
	// Device is the NIC below.
	Device string
	// MTU in bytes.
	MTU int
	// Local is the node's own VTEP; only of a VXLAN.
	Local netip.Addr
	// Peers are the other nodes' VTEPs, in order; only of a VXLAN.
	Peers []netip.Addr
}

// ObservedLink is a link that is there.
type ObservedLink struct {
	Spec
	// Learned are the VTEPs that single addresses were learned from; only of a VXLAN.
	Learned []netip.Addr
	// Managed says that it has our mark. Others are here for their names and
	// identities only.
	Managed bool
	// Unfinished says that it is ours and that its making was interrupted.
	Unfinished bool
	// Up says that it is set up.
	Up bool
	// HostUnreachable says that it has no address, and IPv6 off: nobody on the network
	// can reach the node through it.
	HostUnreachable bool
	// TagsFiltered says that no slave on it can send frames with a VLAN tag.
	TagsFiltered bool
	// MAC of the link.
	MAC net.HardwareAddr
}

// State is what the kernel says of the host's links at one moment.
type State struct {
	// NICs are the links that are not ours, without loopback.
	NICs []NIC
	// Links are ours, and VLAN and VXLAN links of others.
	Links []ObservedLink
}

// nic finds a NIC by name.
func (s *State) nic(name string) (*NIC, bool) {
	for i := range s.NICs {
		if s.NICs[i].Name == name {
			return &s.NICs[i], true
		}
	}
	return nil, false
}

// link finds a whole link of ours.
func (s *State) link(id network.Link) *ObservedLink {
	for i := range s.Links {
		if f := &s.Links[i]; f.Managed && !f.Unfinished && f.Identity == id {
			return f
		}
	}
	return nil
}
