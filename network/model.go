// SPDX-License-Identifier: Apache-2.0

// Package network turns the objects that users write into one validated model.
// Admission, the node daemon and netwatcher all use this one function, so they
// cannot disagree on what an object means. It is pure: no API, no kernel, no clock.
package network

import (
	"net/netip"
	"time"
)

// Ref names a network object. It is comparable.
type Ref struct {
	// Kind is ClusterNetwork, TenantNetwork or DanmNet.
	Kind string
	// Namespace is empty for a ClusterNetwork.
	Namespace string
	// Name of the object.
	Name string
}

// String returns Kind/namespace/name, or Kind/name without a namespace.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

// Network is a network object that passed validation.
type Network struct {
	// Ref names the object.
	Ref Ref
	// UID of the object: a network re-created with the same name is another one.
	UID string
	// Generation of the object's spec.
	Generation int64
	// Created orders networks that compete for a link; the older one wins.
	Created time.Time
	// Deleting says that the object has a deletion timestamp: no new attachments.
	Deleting bool

	// ID is spec.NetworkID.
	ID string
	// Type is the lower-case backend (ipvlan, macvlan, sriov) or, for a
	// delegate, the name of the CNI plugin as it was written.
	Type string
	// AllowedTenants are the namespaces that may attach; nil means all.
	AllowedTenants []string
	// Assignment is a TenantNetwork's annotation danm.io/assigned; see Assigned.
	Assignment string `json:",omitempty"`

	// Device is the parent NIC, without VLAN or VXLAN; empty when not set.
	Device string
	// DevicePool is the device plugin's resource; empty when not set.
	DevicePool string
	// VLAN is 1-4094, or 0 when not set.
	VLAN int
	// VXLAN is 1-16777214, or 0 when not set.
	VXLAN int
	// Trunk says that Pods may send frames with VLAN tags into their NIC.
	Trunk bool `json:",omitempty"`
	// Mode is the IPVLAN mode (l2, l3, l3s) or the MACVLAN mode (bridge, private,
	// vepa, passthru); empty for the backend's default. No option sets it yet.
	Mode string
	// Prefix is the interface name prefix, "eth" when not set.
	Prefix string
	// MTU in bytes, or 0 for the parent's.
	MTU int
	// Table is the routing table of policy routes, or 0 for none.
	Table int
	// ConflictProbe asks for address conflict detection before an address is used.
	ConflictProbe bool `json:",omitempty"`

	// SourceGuard drops frames that Pods send with the MAC or address of another.
	SourceGuard bool `json:",omitempty"`
	// SourceGuardSet says that the network asks for it, and may not go without.
	SourceGuardSet bool `json:",omitempty"`

	// V4 is the IPv4 subnet, nil when the network has none.
	V4 *Subnet
	// V6 is the IPv6 subnet, nil when the network has none.
	V6 *Subnet
}

// Subnet is one family of a network.
type Subnet struct {
	// CIDR is the subnet, masked.
	CIDR netip.Prefix
	// Start and End are the first and last dynamic addresses.
	Start, End netip.Addr
	// Static are the ranges that static addresses lie in; nil means all of CIDR, and
	// an empty list that there are none.
	Static []AddrRange `json:",omitzero"`
	// Routes are installed in every attached Pod, ordered by destination.
	Routes []Route
}

// AddrRange is a range of addresses, both ends included.
type AddrRange struct{ Start, End netip.Addr }

// Route is a destination behind a gateway.
type Route struct {
	// Dst is the destination, masked.
	Dst netip.Prefix
	// Gateway is in the network's subnet.
	Gateway netip.Addr
}

// Delegates reports whether the network's interfaces are another plugin's work.
func (n *Network) Delegates() bool {
	switch n.Type {
	case "ipvlan", "macvlan", "sriov":
		return false
	}
	return true
}
