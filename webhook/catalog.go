// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"sync"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// catalog is what all networks mean. It is a little behind the API server: of two
// that conflict and are created at the same moment both may be let in, and then the
// younger one is an error on the nodes. It is safe for concurrent use.
type catalog struct {
	mu     sync.RWMutex
	models map[network.Ref]objects.Model
	// places counts the networks at each place, reserved or not.
	places map[network.Place]int
	// names counts the networks that give or use a link of the name.
	names map[string]int
	// complete says that all networks were read once.
	complete bool
}

// errStarting says that the answer would be made up.
var errStarting = fmt.Errorf("the controller has just started and is reading the networks: %w", reserve.ErrUnavailable)

// ready returns an error until all networks were read once.
func (c *catalog) ready() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.complete {
		return nil
	}
	return errStarting
}

// completed notes that all networks were read.
func (c *catalog) completed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
}

func newCatalog() *catalog {
	return &catalog{models: map[network.Ref]objects.Model{}, places: map[network.Place]int{}, names: map[string]int{}}
}

// knows reports whether the model of this version is there.
func (c *catalog) knows(ref network.Ref, v objects.Version) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.models[ref]
	return ok && m.Version == v
}

// put takes over a model; a later one of the same object stays.
func (c *catalog) put(ref network.Ref, m objects.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.models[ref]
	if known && old.Version.UID == m.Version.UID && old.Version.Generation > m.Version.Generation {
		return
	}
	c.count(old.Network, -1)
	c.models[ref] = m
	c.count(m.Network, 1)
}

// remove forgets a network.
func (c *catalog) remove(ref network.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(c.models[ref].Network, -1)
	delete(c.models, ref)
}

func (c *catalog) count(n *network.Network, by int) {
	if n == nil {
		return
	}
	add(c.places, placeOf(n), by)
	add(c.names, n.LinkName(), by)
	add(c.names, n.Device, by)
}

// add changes a count; one of 0 is not kept.
func add[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] == 0 {
		delete(counts, key)
	}
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

// taken reports whether any network is on the VLAN or VXLAN of a place, or has the
// name that the link of this NetworkID would get there: a tenant then gets another
// VLAN. A VXLAN's name does not depend on its ID, so another one would not help.
func (c *catalog) taken(p network.Place, networkID string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p.Kind == network.PlaceVXLAN {
		return c.places[network.Place{Kind: p.Kind, ID: p.ID}] > 0
	}
	link := network.Network{ID: networkID, VLAN: p.ID}
	return c.places[p] > 0 || c.names[link.LinkName()] > 0
}

// get returns a network, nil when it is not there or not valid.
func (c *catalog) get(ref network.Ref) (objects.Model, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.models[ref]
	return m, ok
}

// rivals are the networks that n could be in conflict with.
func (c *catalog) rivals(n *network.Network) []*network.Network {
	c.mu.RLock()
	defer c.mu.RUnlock()
	place, name := placeOf(n), n.LinkName()
	var found []*network.Network
	for _, m := range c.models {
		o := m.Network
		if o == nil || o.Ref == n.Ref || o.Device+o.DevicePool == "" {
			continue
		}
		near := placeOf(o) == place || o.Device == name || o.LinkName() == name || o.LinkName() == n.Device
		if near && o.Assigned() == nil { // a tenant's own wish is in nobody's way
			found = append(found, o)
		}
	}
	return found
}
