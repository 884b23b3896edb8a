// SPDX-License-Identifier: Apache-2.0

// Package network parses the objects that users write into one validated model, and checks models
// against requests, changes and each other. Admission, the node daemon and netwatcher use the same
// functions, so that all of them interpret an object in the same way. The package is pure: it uses
// no API server, no kernel and no clock.
package network

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Ref identifies a network object. It is comparable.
type Ref struct {
	// Kind is ClusterNetwork, TenantNetwork or DanmNet. KindNodeConfiguration is no object's.
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
	// UID of the object: a network that is created again with the same name has another UID.
	UID string
	// Generation of the object's spec.
	Generation int64
	// Created orders networks that conflict: the older one wins.
	Created time.Time
	// Deleting is true if the object has a deletion timestamp: no Pod may attach any more.
	Deleting bool

	// ID is spec.NetworkID.
	ID string
	// Type is the backend in lower case (ipvlan, macvlan, sriov), or the name of the CNI plugin
	// to delegate to, as the user wrote it.
	Type string
	// AllowedTenants are the namespaces that may attach; nil means all.
	AllowedTenants []string
	// Assignment is a TenantNetwork's annotation danm.io/assigned; see ParseAssignment.
	Assignment string `json:",omitempty"`

	// Device is the parent NIC, without VLAN or VXLAN; empty when not set.
	Device string
	// DevicePool is the device plugin's resource; empty when not set.
	DevicePool string
	// VLAN is 1-4094, or 0 when not set.
	VLAN int
	// VXLAN is 1-16777214, or 0 when not set.
	VXLAN int
	// Trunk allows Pods to send frames with VLAN tags into the NIC.
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
	// ConflictProbe enables address conflict detection before an address is used.
	ConflictProbe bool `json:",omitempty"`

	// SourceGuard drops frames of Pods whose source MAC or address is not their own.
	SourceGuard bool `json:",omitempty"`
	// SourceGuardSet is true if the spec requires SourceGuard: without it no Pod may attach.
	SourceGuardSet bool `json:",omitempty"`

	// SRIOV are the settings of virtual functions, for Type sriov.
	SRIOV SRIOV `json:",omitzero"`

	// V4 is the IPv4 subnet, nil when the network has none.
	V4 *Subnet
	// V6 is the IPv6 subnet, nil when the network has none.
	V6 *Subnet
}

// EtherTypes of VLAN tags.
const (
	EtherType8021Q  = 0x8100
	EtherType8021AD = 0x88a8
)

// SRIOV are the settings of the virtual function of each attached Pod.
type SRIOV struct {
	// VLANQoS is the priority in the VLAN tag, 0-7.
	VLANQoS int `json:",omitempty"`
	// VLANProtocol is EtherType8021Q or EtherType8021AD, or 0 when not set.
	VLANProtocol uint16 `json:",omitempty"`
	// SpoofCheck drops frames with another source MAC than the function's; nil when not set, which
	// means true if the driver supports it.
	SpoofCheck *bool `json:",omitempty"`
	// Trust allows the Pod to change the MAC, VLAN filters and promiscuous mode; nil when not set,
	// which means false if the driver supports it.
	Trust *bool `json:",omitempty"`
	// LinkState is auto, enable or disable; empty to keep the function's.
	LinkState string `json:",omitempty"`
	// MinTxRate and MaxTxRate are in Mbit/s; 0 to keep the function's.
	MinTxRate, MaxTxRate int `json:",omitempty"`
	// Promiscuous sets the interface in the Pod to promiscuous mode.
	Promiscuous bool `json:",omitempty"`
}

// UsesDevicePool reports whether each attached Pod gets a device of DevicePool. Such a network has a
// DevicePool, because its rules require one.
func (n *Network) UsesDevicePool() bool { return n.Type == v1.TypeSRIOV }

// Delegates reports whether another CNI plugin creates the network's interfaces.
func (n *Network) Delegates() bool {
	switch n.Type {
	case "ipvlan", "macvlan", "sriov":
		return false
	}
	return true
}

// IsNodeConfiguration reports whether the network is a CNI configuration of the node, and no object.
func (n *Network) IsNodeConfiguration() bool { return n.Ref.Kind == KindNodeConfiguration }

// Allows reports whether Pods of the namespace may attach to the network.
func (n *Network) Allows(namespace string) bool {
	if n.Ref.Namespace != "" {
		return n.Ref.Namespace == namespace
	}
	return len(n.AllowedTenants) == 0 || slices.Contains(n.AllowedTenants, namespace)
}

// Older reports whether n wins a conflict with o: by creation time, then UID. A network that is not
// created yet, as during its admission, is the youngest.
func (n *Network) Older(o *Network) bool {
	if n.Created.IsZero() != o.Created.IsZero() {
		return o.Created.IsZero()
	}
	if !n.Created.Equal(o.Created) {
		return n.Created.Before(o.Created)
	}
	return n.UID < o.UID
}

// Link is the identity of the host link below a network's interfaces: a NIC, a VLAN of a NIC, or a
// VXLAN. The kernel has one VLAN link per parent and ID, and one VXLAN link per VNI and port on the
// whole node, whatever its NIC. So networks with the same identity share a link. It is comparable.
type Link struct {
	// Device is the NIC; empty for a VXLAN.
	Device string
	// VLAN is 1-4094 for a VLAN link, else 0.
	VLAN int
	// VXLAN is 1-16777214 for a VXLAN link, else 0.
	VXLAN int
}

// IsNIC reports whether the link is a NIC, which Patchbay does not create.
func (l Link) IsNIC() bool { return l.VLAN == 0 && l.VXLAN == 0 }

// String returns nic/<device>, vlan/<device>/<ID> or vxlan/<VNI>, as in a
// NodeNetwork's links.
func (l Link) String() string {
	switch {
	case l.VXLAN != 0:
		return "vxlan/" + strconv.Itoa(l.VXLAN)
	case l.VLAN != 0:
		return "vlan/" + l.Device + "/" + strconv.Itoa(l.VLAN)
	}
	return "nic/" + l.Device
}

// Link returns the identity of the network's host link, or false if it has none: without a device, and
// with SR-IOV, where the virtual function sets the VLAN.
func (n *Network) Link() (Link, bool) {
	switch {
	case n.Device == "" || n.UsesDevicePool():
		return Link{}, false
	case n.VXLAN != 0:
		return Link{VXLAN: n.VXLAN}, true
	}
	return Link{Device: n.Device, VLAN: n.VLAN}, true
}

// LinkName returns the name of the host link if this network is the oldest with that identity:
// <NetworkID>.<vlan>, vx_<NetworkID>, or the NIC's name. The name of a TenantNetwork's link comes from
// the assignment: tenants choose NetworkIDs, so that one tenant could block a name for all others,
// and their errors would disclose its network.
func (n *Network) LinkName() string {
	tenants := n.Ref.Kind == v1.KindTenantNetwork
	switch {
	case n.VXLAN != 0 && tenants:
		return "vx" + strconv.Itoa(n.VXLAN)
	case n.VXLAN != 0:
		return "vx_" + n.ID
	case n.VLAN != 0 && tenants:
		return "vl" + strconv.Itoa(n.VLAN) + "_" + shortDevice(n.Device)
	case n.VLAN != 0:
		return n.ID + "." + strconv.Itoa(n.VLAN)
	}
	return n.Device
}

// plainDevice matches a NIC's name that fits into a link name after the longest VLAN ID. The link name
// then differs from all that NetworkIDs give.
var plainDevice = regexp.MustCompile(`^[A-Za-z0-9]{1,8}$`)

// shortDevice returns the NIC's name, or a hash of a name that is too long. If two hashes are equal,
// the younger network has a conflict of link names.
func shortDevice(device string) string {
	if plainDevice.MatchString(device) {
		return device
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(device)) // never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

// Subnet is the configuration of a network for one address family.
type Subnet struct {
	// CIDR is the subnet, masked.
	CIDR netip.Prefix
	// Start and End are the first and last dynamic addresses.
	Start, End netip.Addr
	// Static are the ranges of static addresses. Nil allows all of CIDR, and an empty list allows
	// none.
	Static []AddrRange `json:",omitzero"`
	// Routes are installed in every attached Pod, ordered by destination.
	Routes []Route
}

func (s *Subnet) inPool(a netip.Addr) bool { return !a.Less(s.Start) && !s.End.Less(a) }

func (s *Subnet) poolOverlaps(o *Subnet) bool {
	return !s.End.Less(o.Start) && !o.End.Less(s.Start)
}

// Gateways returns the gateways of the subnet's routes; none for nil.
func (s *Subnet) Gateways() []netip.Addr {
	if s == nil {
		return nil
	}
	gateways := make([]netip.Addr, len(s.Routes))
	for i, r := range s.Routes {
		gateways[i] = r.Gateway
	}
	return gateways
}

func (s *Subnet) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Gateway == a })
}

// AllowsStatic reports whether a Pod may request this static address of the subnet. It does not
// consider reserved addresses.
func (s *Subnet) AllowsStatic(a netip.Addr) bool {
	return s.Static == nil || slices.ContainsFunc(s.Static, func(r AddrRange) bool {
		return !a.Less(r.Start) && !r.End.Less(a)
	})
}

// AddrRange is a range of addresses, both ends included.
type AddrRange struct{ Start, End netip.Addr }

// String returns start-end, or the one address.
func (r AddrRange) String() string {
	if r.Start == r.End {
		return r.Start.String()
	}
	return r.Start.String() + "-" + r.End.String()
}

// Route is a route to a destination by a gateway.
type Route struct {
	// Dst is the destination, masked.
	Dst netip.Prefix
	// Gateway is in the network's subnet.
	Gateway netip.Addr
}

// Key names one incarnation of a network object. It is comparable.
type Key struct {
	// Ref names the object.
	Ref Ref
	// UID tells it from another object of the same name.
	UID string
}

// KeyOf returns the key of a network.
func KeyOf(n *Network) Key { return Key{Ref: n.Ref, UID: n.UID} }
