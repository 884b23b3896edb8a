// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"slices"
	"strings"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// offer is a device that would do.
type offer struct {
	config       Config
	kind, device string
	ranges       network.VNIRanges
}

func (o offer) used() int { return o.config.Used(o.kind, o.device) }

func (o offer) rank() int {
	if o.kind == network.PlaceNIC {
		return 1
	}
	return 0
}

// skip leaves out IDs that are taken; those of a shared device only count.
func (o offer) skip(taken Taken) func(network.Place) bool {
	if o.kind == network.PlaceNIC || taken == nil {
		return nil
	}
	return taken
}

// offers are the devices that suit the type and the tenant's own choice.
func (w Wish) offers(configs []Config) []offer {
	var all []offer
	for _, c := range configs {
		for _, d := range c.Devices {
			if !w.suits(d) {
				continue
			}
			all = append(all, offersOf(c, d)...)
		}
	}
	return slices.DeleteFunc(all, func(o offer) bool { return o.kind == network.PlaceVXLAN && w.Type == v1.TypeSRIOV })
}

func offersOf(c Config, d network.TenantDevice) []offer {
	switch {
	case len(d.VLANs) > 0:
		return []offer{{c, network.PlaceVLAN, d.Name, d.VLANs}}
	case len(d.VXLANs) > 0:
		return []offer{{c, network.PlaceVXLAN, d.Name, d.VXLANs}}
	}
	return []offer{{c, network.PlaceNIC, d.Name, network.VNIRanges{{First: 1, Last: maxShared}}}}
}

// suits: SR-IOV takes a device pool, the others a NIC unless they ask for a pool.
func (w Wish) suits(d network.TenantDevice) bool {
	pool := strings.Contains(d.Name, "/")
	switch {
	case w.Device != "":
		return !pool && d.Name == w.Device
	case w.DevicePool != "":
		return pool && d.Name == w.DevicePool
	}
	return pool == (w.Type == v1.TypeSRIOV)
}
