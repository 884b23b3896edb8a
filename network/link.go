// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

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
