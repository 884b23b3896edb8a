// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// conflictIndex finds the networks that could conflict with a network, without a scan of all
// networks: by their slot, by the name of their link, and by their device. It leaves out
// TenantNetworks without a valid assignment, which conflict with none.
type conflictIndex struct {
	slots   map[network.TenantSlot]networkSet
	links   map[string]networkSet
	devices map[string]networkSet
}

// networkSet is a set of networks. Two parsed versions of one network are two members.
type networkSet map[*network.Network]struct{}

func newConflictIndex() *conflictIndex {
	return &conflictIndex{slots: map[network.TenantSlot]networkSet{}, links: map[string]networkSet{}, devices: map[string]networkSet{}}
}

func (x *conflictIndex) add(n *network.Network) {
	if !canConflict(n) {
		return
	}
	addToSet(x.slots, slotOf(n), n)
	if link := createdLinkName(n); link != "" {
		addToSet(x.links, link, n)
	}
	if n.Device != "" {
		addToSet(x.devices, n.Device, n)
	}
}

func addToSet[K comparable](sets map[K]networkSet, key K, n *network.Network) {
	if sets[key] == nil {
		sets[key] = networkSet{}
	}
	sets[key][n] = struct{}{}
}

func (x *conflictIndex) remove(n *network.Network) {
	if !canConflict(n) {
		return
	}
	removeFromSet(x.slots, slotOf(n), n)
	removeFromSet(x.links, createdLinkName(n), n)
	removeFromSet(x.devices, n.Device, n)
}

func removeFromSet[K comparable](sets map[K]networkSet, key K, n *network.Network) {
	delete(sets[key], n)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// canConflict reports whether a network can conflict with another one.
func canConflict(n *network.Network) bool {
	return n != nil && n.Device+n.DevicePool != "" && network.CheckAssignment(n) == nil
}

// findConflict returns an error if n conflicts with another network. A network that changes counts
// as the youngest, since its change must not break a younger network. But two networks that are in
// conflict already keep their order by age.
func (x *conflictIndex) findConflict(before, n *network.Network) error {
	contenders := x.contenders(n)
	err := network.CheckConflict(withoutCreationTime(n), contenders)
	if err == nil || before == nil {
		return err
	}
	if network.CheckConflict(withoutCreationTime(before), x.contenders(before)) != nil {
		return network.CheckConflict(n, contenders)
	}
	return err
}

// withoutCreationTime returns n as the youngest network.
func withoutCreationTime(n *network.Network) *network.Network {
	young := *n
	young.Created = time.Time{}
	return &young
}

// contenders returns the networks that n could conflict with, without n itself. It looks up the
// names of links and devices only in each other: networks on one NIC share the NIC's name without a
// conflict.
func (x *conflictIndex) contenders(n *network.Network) []*network.Network {
	found := networkSet{}
	collect := func(s networkSet) {
		for o := range s {
			if o.Ref != n.Ref {
				found[o] = struct{}{}
			}
		}
	}
	collect(x.slots[slotOf(n)])
	collect(x.links[n.Device])
	if link := createdLinkName(n); link != "" {
		collect(x.links[link])
		collect(x.devices[link])
	}
	list := make([]*network.Network, 0, len(found))
	for o := range found {
		list = append(list, o)
	}
	return list
}

// isTaken reports whether a network has the slot, or the name as its link or device.
func (x *conflictIndex) isTaken(slot network.TenantSlot, name string) bool {
	return len(x.slots[slot]) > 0 || name != "" && len(x.links[name])+len(x.devices[name]) > 0
}

// createdLinkName returns the name of the link that nodes create for the network; "" when it uses a
// NIC itself, or a virtual function.
func createdLinkName(n *network.Network) string {
	if n.Device == "" || n.UsesDevicePool() || n.VLAN == 0 && n.VXLAN == 0 {
		return ""
	}
	return n.LinkName()
}

// slotOf returns the VLAN, VXLAN or NIC of a network. A VXLAN is unique on a node, so its slot has
// no device.
func slotOf(n *network.Network) network.TenantSlot {
	device := n.Device + n.DevicePool // one of them is empty
	if slot, ok := segmentSlot(device, n.VLAN, n.VXLAN); ok {
		return slot
	}
	return network.TenantSlot{Kind: network.SlotNIC, Device: device}
}

// segmentSlot returns the slot of a VLAN or VXLAN; false if both are 0.
func segmentSlot(device string, vlan, vxlan int) (network.TenantSlot, bool) {
	switch {
	case vxlan != 0:
		return network.TenantSlot{Kind: network.SlotVXLAN, ID: vxlan}, true
	case vlan != 0:
		return network.TenantSlot{Kind: network.SlotVLAN, Device: device, ID: vlan}, true
	}
	return network.TenantSlot{}, false
}
