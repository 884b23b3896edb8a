// SPDX-License-Identifier: Apache-2.0

// Package network turns the objects that users write into one validated model.
// Admission, the node daemon and netwatcher all use this one function, so they
// cannot disagree on what an object means. It is pure: no API, no kernel, no clock.
package network

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
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

// Delegates reports whether the network's interfaces are another plugin's work.
func (n *Network) Delegates() bool {
	switch n.Type {
	case "ipvlan", "macvlan", "sriov":
		return false
	}
	return true
}

// Allows reports whether Pods of the namespace may attach to the network.
func (n *Network) Allows(namespace string) bool {
	if n.Ref.Namespace != "" {
		return n.Ref.Namespace == namespace
	}
	return len(n.AllowedTenants) == 0 || slices.Contains(n.AllowedTenants, namespace)
}

// Older reports whether n comes before o where two compete: by creation, then
// UID. One that is not created yet, as at its admission, is the youngest.
func (n *Network) Older(o *Network) bool {
	if n.Created.IsZero() != o.Created.IsZero() {
		return o.Created.IsZero()
	}
	if !n.Created.Equal(o.Created) {
		return n.Created.Before(o.Created)
	}
	return n.UID < o.UID
}

// Link is the identity of the link on the host that a network's interfaces are
// on: a NIC itself, a VLAN of a NIC, or a VXLAN. The kernel has one VLAN link per
// parent and ID, and one VXLAN per VNI and port on the whole node, whatever NIC it
// is on: so networks with the same identity share a link. It is comparable.
type Link struct {
	// Device is the NIC; empty for a VXLAN.
	Device string
	// VLAN is 1-4094 for a VLAN link, else 0.
	VLAN int
	// VXLAN is 1-16777214 for a VXLAN link, else 0.
	VXLAN int
}

// IsNIC reports whether the link is a NIC that is there already: nobody makes it.
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

// Link returns the identity of the network's link on the host, or false when it
// needs none: one without a device, and SR-IOV, where the function sets the VLAN.
func (n *Network) Link() (Link, bool) {
	switch {
	case n.Device == "" || n.Type == v1.TypeSRIOV:
		return Link{}, false
	case n.VXLAN != 0:
		return Link{VXLAN: n.VXLAN}, true
	}
	return Link{Device: n.Device, VLAN: n.VLAN}, true
}

// LinkName returns the name that this network gives its link when it is the
// oldest with that identity: <NetworkID>.<vlan>, vx_<NetworkID>, or the NIC's. A tenant's
// link is named after what admission assigned: tenants choose NetworkIDs, and one would
// take a name from all others, whose refusal would tell them that it is there.
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

// plainDevice is a NIC's name that fits into a link's behind the longest VLAN, and makes
// none that a NetworkID could make.
var plainDevice = regexp.MustCompile(`^[A-Za-z0-9]{1,8}$`)

// shortDevice returns the NIC's name, or a hash of one that is too long. Two that have
// the same one day are a conflict of the younger network, as with any name.
func shortDevice(device string) string {
	if plainDevice.MatchString(device) {
		return device
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(device)) // never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

// segment returns false for a network without a device: nothing tells where it is.
func (n *Network) segment() (segment, bool) {
	if n.VXLAN != 0 && n.Device != "" {
		return segment{vxlan: n.VXLAN}, true // one VNI is one segment, whatever NIC it is on
	}
	s := segment{device: n.Device, pool: n.DevicePool, vlan: n.VLAN, vxlan: n.VXLAN}
	return s, n.Device != "" || n.DevicePool != ""
}

// visibleName names another network in a message about n. The message is for those who may read
// n: of a network in a namespace these are its tenants, who see neither the networks of
// other namespaces nor ClusterNetworks that are not for them.
func (n *Network) visibleName(o *Network) string {
	if n.Ref.Namespace == "" || o.Allows(n.Ref.Namespace) {
		return o.Ref.String()
	}
	return "a network that is not for this namespace"
}

// conflictError is a refusal of n that names the field with which it is in the way.
func (n *Network) conflictError(sort error, path *field.Path, value any, rule string, args ...any) error {
	text := sort.Error() + ": " + fmt.Sprintf(rule, args...)
	return &InvalidError{Subject: n.Ref.String(), Faults: field.ErrorList{field.Invalid(path, value, text)}, Err: sort}
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

func (s *Subnet) inPool(a netip.Addr) bool { return !a.Less(s.Start) && !s.End.Less(a) }

func (s *Subnet) poolOverlaps(o *Subnet) bool {
	return !s.End.Less(o.Start) && !o.End.Less(s.Start)
}

func (s *Subnet) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Gateway == a })
}

// AllowsStatic reports whether the network lets a Pod name this address of the subnet.
// Reserved addresses are another matter.
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

// Route is a destination behind a gateway.
type Route struct {
	// Dst is the destination, masked.
	Dst netip.Prefix
	// Gateway is in the network's subnet.
	Gateway netip.Addr
}
