// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// near finds the networks that could be in each other's way, without a look at all
// of them: by where they are, by the name of their link, and by their device. A
// tenant's own wish is in nobody's way, and not in here.
type near struct {
	places  map[network.Place]set
	links   map[string]set
	devices map[string]set
}

// set of networks; two readings of one network are two members.
type set map[*network.Network]struct{}

func newNear() *near {
	return &near{places: map[network.Place]set{}, links: map[string]set{}, devices: map[string]set{}}
}

func (x *near) add(n *network.Network) {
	if !inTheWay(n) {
		return
	}
	put(x.places, placeOf(n), n)
	if link := madeLink(n); link != "" {
		put(x.links, link, n)
	}
	if n.Device != "" {
		put(x.devices, n.Device, n)
	}
}

func put[K comparable](sets map[K]set, key K, n *network.Network) {
	if sets[key] == nil {
		sets[key] = set{}
	}
	sets[key][n] = struct{}{}
}

func (x *near) remove(n *network.Network) {
	if !inTheWay(n) {
		return
	}
	drop(x.places, placeOf(n), n)
	drop(x.links, madeLink(n), n)
	drop(x.devices, n.Device, n)
}

func drop[K comparable](sets map[K]set, key K, n *network.Network) {
	delete(sets[key], n)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// inTheWay reports whether a network can be in the way of another.
func inTheWay(n *network.Network) bool {
	return n != nil && n.Device+n.DevicePool != "" && n.Assigned() == nil
}

// conflict says which other network is in the way. Who is changed counts as the
// youngest: by a change of its own, an older network would break a younger one. But
// two that are in conflict already stay what they are by age.
func (x *near) conflict(before, n *network.Network) error {
	rivals := x.rivals(n)
	err := network.Conflict(youngest(n), rivals)
	if err == nil || before == nil {
		return err
	}
	if network.Conflict(youngest(before), x.rivals(before)) != nil {
		return network.Conflict(n, rivals)
	}
	return err
}

// youngest returns n as if it had not been created yet.
func youngest(n *network.Network) *network.Network {
	young := *n
	young.Created = time.Time{}
	return &young
}

// rivals are the networks that n could be in conflict with, but for n itself. Those
// on the same NIC are only there for a name: each network has its NIC's.
func (x *near) rivals(n *network.Network) []*network.Network {
	found := set{}
	collect := func(s set) {
		for o := range s {
			if o.Ref != n.Ref {
				found[o] = struct{}{}
			}
		}
	}
	collect(x.places[placeOf(n)])
	collect(x.links[n.Device])
	if link := madeLink(n); link != "" {
		collect(x.links[link])
		collect(x.devices[link])
	}
	list := make([]*network.Network, 0, len(found))
	for o := range found {
		list = append(list, o)
	}
	return list
}

// taken reports whether a network is at the place, or has the name.
func (x *near) taken(p network.Place, name string) bool {
	return len(x.places[p]) > 0 || name != "" && len(x.links[name])+len(x.devices[name]) > 0
}

// madeLink is the name that the network would give a link of ours; "" when it uses a
// NIC itself, or a virtual function.
func madeLink(n *network.Network) string {
	if n.Device == "" || n.Type == v1.TypeSRIOV || n.VLAN == 0 && n.VXLAN == 0 {
		return ""
	}
	return n.LinkName()
}

// placeOf is where a network is. A VXLAN is one on the whole node, whatever its NIC.
func placeOf(n *network.Network) network.Place {
	device := n.Device + n.DevicePool // one of them is empty
	switch {
	case n.VXLAN != 0:
		return network.Place{Kind: network.PlaceVXLAN, ID: n.VXLAN}
	case n.VLAN != 0:
		return network.Place{Kind: network.PlaceVLAN, Device: device, ID: n.VLAN}
	}
	return network.Place{Kind: network.PlaceNIC, Device: device}
}
