// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// conflictIndex finds the networks that could be in each other's way, without a look at all
// of them: by where they are, by the name of their link, and by their device. A
// tenant's own wish is in nobody's way, and not in here.
type conflictIndex struct {
	places  map[network.TenantSlot]networkSet
	links   map[string]networkSet
	devices map[string]networkSet
}

// networkSet of networks; two readings of one network are two members.
type networkSet map[*network.Network]struct{}

func newConflictIndex() *conflictIndex {
	return &conflictIndex{places: map[network.TenantSlot]networkSet{}, links: map[string]networkSet{}, devices: map[string]networkSet{}}
}

func (x *conflictIndex) add(n *network.Network) {
	if !canConflict(n) {
		return
	}
	addToSet(x.places, placeOf(n), n)
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
	removeFromSet(x.places, placeOf(n), n)
	removeFromSet(x.links, createdLinkName(n), n)
	removeFromSet(x.devices, n.Device, n)
}

func removeFromSet[K comparable](sets map[K]networkSet, key K, n *network.Network) {
	delete(sets[key], n)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// canConflict reports whether a network can be in the way of another.
func canConflict(n *network.Network) bool {
	return n != nil && n.Device+n.DevicePool != "" && n.CheckAssignment() == nil
}

// findConflict says which other network is in the way. Who is changed counts as the
// youngest: by a change of its own, an older network would break a younger one. But
// two that are in conflict already stay what they are by age.
func (x *conflictIndex) findConflict(before, n *network.Network) error {
	rivals := x.contenders(n)
	err := network.CheckConflict(withoutCreationTime(n), rivals)
	if err == nil || before == nil {
		return err
	}
	if network.CheckConflict(withoutCreationTime(before), x.contenders(before)) != nil {
		return network.CheckConflict(n, rivals)
	}
	return err
}

// withoutCreationTime returns n as if it had not been created yet.
func withoutCreationTime(n *network.Network) *network.Network {
	young := *n
	young.Created = time.Time{}
	return &young
}

// contenders are the networks that n could be in conflict with, but for n itself. Those
// on the same NIC are only there for a name: each network has its NIC's.
func (x *conflictIndex) contenders(n *network.Network) []*network.Network {
	found := networkSet{}
	collect := func(s networkSet) {
		for o := range s {
			if o.Ref != n.Ref {
				found[o] = struct{}{}
			}
		}
	}
	collect(x.places[placeOf(n)])
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

// isTaken reports whether a network is at the place, or has the name.
func (x *conflictIndex) isTaken(p network.TenantSlot, name string) bool {
	return len(x.places[p]) > 0 || name != "" && len(x.links[name])+len(x.devices[name]) > 0
}

// createdLinkName is the name that the network would give a link of ours; "" when it uses a
// NIC itself, or a virtual function.
func createdLinkName(n *network.Network) string {
	if n.Device == "" || n.Type == v1.TypeSRIOV || n.VLAN == 0 && n.VXLAN == 0 {
		return ""
	}
	return n.LinkName()
}

// placeOf is where a network is. A VXLAN is one on the whole node, whatever its NIC.
func placeOf(n *network.Network) network.TenantSlot {
	device := n.Device + n.DevicePool // one of them is empty
	switch {
	case n.VXLAN != 0:
		return network.TenantSlot{Kind: network.SlotVXLAN, ID: n.VXLAN}
	case n.VLAN != 0:
		return network.TenantSlot{Kind: network.SlotVLAN, Device: device, ID: n.VLAN}
	}
	return network.TenantSlot{Kind: network.SlotNIC, Device: device}
}
