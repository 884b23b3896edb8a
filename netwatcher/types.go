// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net"
	"net/netip"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// NIC is a link of the node that Patchbay does not manage, and that may have links or Pods on top:
// a card, a bond, or any other link that a network names as its host_device.
type NIC struct {
	// Name of the link.
	Name string
	// Kind is the kernel's link kind, empty for a card.
	Kind string
	// MAC in the colon notation.
	MAC string
	// MTU in bytes.
	MTU int
	// Driver of the device, empty for none.
	Driver string
	// Speed in Mbit/s, 0 if it is unknown.
	Speed int
	// Up is whether the link is set up.
	Up bool
	// NoCarrier is whether the link is set up and has no carrier.
	NoCarrier bool
	// Master is the bridge, bond or other link that this one is a port of.
	Master string
	// MasterKind is the kernel's link kind of Master.
	MasterKind string
	// Addresses are the global ones, in the kernel's order.
	Addresses []netip.Prefix
	// TagsFiltered is whether slaves on the NIC cannot send frames with a VLAN tag.
	TagsFiltered bool
	// VF is whether the NIC is a virtual function, which comes and goes with Pods.
	VF bool
	// Representor is whether the NIC represents a function in the switch of a network card.
	Representor bool
	// TotalVFs and NumVFs are the numbers of virtual functions that the NIC supports and has.
	TotalVFs, NumVFs int
	// PCIAddress is that of a NIC that supports virtual functions.
	PCIAddress string
	// Functions are the NIC's virtual functions, in the order of their numbers.
	Functions []VirtualFunction
}

// VirtualFunction is a virtual function of a NIC.
type VirtualFunction struct {
	// Index is the function's number at the NIC, from 0.
	Index int
	// Address is the PCI address.
	Address string
	// Driver that is bound to the function, empty for none.
	Driver string
	// Userspace is whether the driver gives the function no network interface.
	Userspace bool
	// Representor is the interface that represents the function in the NIC's switch, empty if the
	// switch is in legacy mode.
	Representor string
}

// Spec describes a VLAN or VXLAN link.
type Spec struct {
	// Identity is never a NIC's.
	Identity network.Link
	// Name on the host.
	Name string
	// Device is the NIC below the link.
	Device string
	// MTU in bytes.
	MTU int
	// Local is the node's own VTEP, for a VXLAN only.
	Local netip.Addr
	// Peers are the other nodes' VTEPs, in order, for a VXLAN only; nil if they are not known.
	Peers []netip.Addr
}

// ObservedLink is an existing link.
type ObservedLink struct {
	Spec
	// Learned are the VTEPs that MACs were learned from, for a VXLAN only.
	Learned []netip.Addr
	// Managed is whether Patchbay created the link. Others are listed for their names and
	// identities only.
	Managed bool
	// Unfinished is whether the creation of a managed link was interrupted.
	Unfinished bool
	// Up is whether the link is set up.
	Up bool
	// HostUnreachable is whether the link has no address and IPv6 is disabled on it: Pods cannot
	// reach the node through it.
	HostUnreachable bool
	// TagsFiltered is whether slaves on the link cannot send frames with a VLAN tag.
	TagsFiltered bool
	// MAC of the link.
	MAC net.HardwareAddr
}

// State has the host's links at one moment.
type State struct {
	// NICs are the links that Patchbay does not manage, without loopback.
	NICs []NIC
	// Links are the managed links, and all other VLAN and VXLAN links.
	Links []ObservedLink
}

// nic returns the NIC of the name.
func (s *State) nic(name string) (*NIC, bool) {
	for i := range s.NICs {
		if s.NICs[i].Name == name {
			return &s.NICs[i], true
		}
	}
	return nil, false
}

// link returns the finished managed link of the identity, or nil.
func (s *State) link(id network.Link) *ObservedLink {
	for i := range s.Links {
		if f := &s.Links[i]; f.Managed && !f.Unfinished && f.Identity == id {
			return f
		}
	}
	return nil
}
