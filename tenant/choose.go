// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"slices"

	"github.com/patchbay-cni/patchbay/network"
)

// Config is a TenantConfig with what is reserved of it.
type Config struct {
	*network.Tenancy
	*Book
}

// Wish is what a new TenantNetwork asks for.
type Wish struct {
	// Namespace of the network, and the namespace's labels.
	Namespace       string
	NamespaceLabels map[string]string
	// Type is as in network.Network.
	Type string
	// Device or DevicePool is what the tenant would like; at most one is set.
	Device, DevicePool string
}

// Choice is what a TenantNetwork gets.
type Choice struct {
	// Config is the TenantConfig that it is drawn from.
	Config Config
	// Place is free.
	Place network.Place
	// NetworkID is what networkIds says for the type; empty leaves the tenant's.
	NetworkID string
}

// Taken reports whether a network cannot be at a place: another one is there without a
// reservation, or has the name that its link would get.
type Taken func(p network.Place) bool

// maxShared is how many networks share a device that has no IDs, or a plugin.
const maxShared = 1 << 20

// Choose finds a free place for a network: the device with the fewest IDs in use,
// and its lowest free ID. A device without IDs comes after all that have some: its
// networks share one segment. Taken may be nil. The error is a *network.InvalidError.
func Choose(w Wish, configs []Config, taken Taken) (Choice, error) {
	mine := serving(configs, w.NamespaceLabels)
	if len(mine) == 0 {
		return Choice{}, w.nothing()
	}
	id, from, err := w.networkID(mine)
	if err != nil {
		return Choice{}, err
	}
	if w.delegates() {
		return w.choosePlugin(id, from)
	}
	offers := w.offers(mine)
	if len(offers) == 0 {
		return Choice{}, w.noDevice(mine)
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.used(), b.used()))
	})
	for _, o := range offers {
		if o.kind == network.PlaceNIC && offers[0].kind != network.PlaceNIC {
			break // better refused than on a shared segment by surprise
		}
		if place, ok := o.config.free(o.kind, o.device, o.ranges, o.skip(taken)); ok {
			return Choice{Config: o.config, Place: place, NetworkID: id}, nil
		}
	}
	return Choice{}, w.exhausted(offers)
}

// NetworkID returns what the namespace's TenantConfigs say for the type, or "". The
// error is a *network.InvalidError that names two that differ.
func NetworkID(w Wish, configs []Config) (string, error) {
	id, _, err := w.networkID(serving(configs, w.NamespaceLabels))
	return id, err
}

// serving returns the TenantConfigs for a namespace, by name.
func serving(configs []Config, labels map[string]string) []Config {
	mine := slices.DeleteFunc(slices.Clone(configs), func(c Config) bool { return !c.Serves(labels) })
	slices.SortFunc(mine, func(a, b Config) int { return cmp.Compare(a.Name, b.Name) })
	return mine
}

func (w Wish) delegates() bool { return (&network.Network{Type: w.Type}).Delegates() }

// networkID returns what networkIds says for the type, and who says so.
func (w Wish) networkID(configs []Config) (id string, from Config, err error) {
	for _, c := range configs {
		other, ok := c.NetworkIDs[w.Type]
		switch {
		case !ok:
		case id == "":
			id, from = other, c
		case other != id:
			return "", Config{}, w.tie(id, other, from, c)
		}
	}
	return id, from, nil
}

// choosePlugin: a plugin has its own ways to a device, so it gets none of ours.
func (w Wish) choosePlugin(id string, from Config) (Choice, error) {
	if id == "" {
		return Choice{}, w.noPlugin()
	}
	if w.Device != "" || w.DevicePool != "" {
		return Choice{}, w.pluginDevice()
	}
	place, ok := from.free(network.PlaceType, w.Type, network.VNIRanges{{First: 1, Last: maxShared}}, nil)
	if !ok {
		return Choice{}, w.exhausted([]offer{{config: from, kind: network.PlaceType, device: w.Type}})
	}
	return Choice{Config: from, Place: place, NetworkID: id}, nil
}
