// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Thresholds of a pool's utilization at which its condition changes. Between the two of a pair the
// condition stays, so that one Pod that comes and goes causes no write.
const (
	scarceThreshold         = 0.90 // Scarce from this utilization on,
	scarceClearThreshold    = 0.85 // until it falls below this one.
	exhaustedClearThreshold = 0.98 // Exhausted at 1, until it falls below this one.
)

// poolUsage is how many of one family's dynamic addresses are in use or held by nodes.
type poolUsage struct {
	// family is IPv4 or IPv6.
	family string
	// inUse and capacity are numbers of addresses; capacity saturates at 2^63-1.
	inUse, capacity int64
}

// utilization is the part of the pool that is in use, from 0 to 1.
func (u poolUsage) utilization() float64 { return float64(u.inUse) / float64(u.capacity) }

// reason returns the condition's reason, given the one before ("" for none).
func (u poolUsage) reason(before string) string {
	switch share := u.utilization(); {
	case u.inUse >= u.capacity, before == v1.ReasonAddressesExhausted && share >= exhaustedClearThreshold:
		return v1.ReasonAddressesExhausted
	case share >= scarceThreshold, before != "" && before != v1.ReasonAddressesSufficient && share >= scarceClearThreshold:
		return v1.ReasonAddressesNearlyExhausted
	}
	return v1.ReasonAddressesSufficient
}

// poolUsages decodes the bitmaps. It leaves out a family whose bitmap is absent, of another subnet
// or damaged, and one without a dynamic address.
func poolUsages(o *status.Object, reserved []netip.Addr) []poolUsage {
	if o.IPAM == nil || o.Invalid != nil || o.Network.Delegates() {
		return nil
	}
	var uses []poolUsage
	for _, f := range []struct {
		name   string
		subnet *network.Subnet
		bitmap *v1.AddressBitmap
	}{{"IPv4", o.Network.V4, o.IPAM.V4}, {"IPv6", o.Network.V6, o.IPAM.V6}} {
		if f.subnet == nil || f.bitmap == nil {
			continue
		}
		cfg := ipam.Config{CIDR: f.subnet.CIDR, Start: f.subnet.Start, End: f.subnet.End, Reserved: reserved}
		for _, r := range f.subnet.Routes {
			cfg.Reserved = append(cfg.Reserved, r.Gateway)
		}
		pool, err := ipam.Decode(cfg, ipam.State{CIDR: f.bitmap.CIDR, Cursor: f.bitmap.Cursor, Pages: f.bitmap.Pages})
		if err == nil && pool.Capacity() > 0 {
			uses = append(uses, poolUsage{f.name, pool.AllocatedDynamic(), pool.Capacity()})
		}
	}
	return uses
}
