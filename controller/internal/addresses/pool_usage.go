// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Shares of a pool at which its condition changes. Between the two of a pair it
// stays as it was, so that one Pod that comes and goes writes nothing.
const (
	scarceThreshold         = 0.90 // Scarce at this share and above,
	scarceClearThreshold    = 0.85 // Enough again below this one.
	exhaustedClearThreshold = 0.98 // Exhausted at all of it, until its use is below this share.
)

// poolUsage is how much of one family's dynamic addresses is in use or held.
type poolUsage struct {
	// family is IPv4 or IPv6.
	family string
	// inUse and capacity are numbers of addresses; capacity saturates at 2^63-1.
	inUse, capacity int64
}

// utilization is how much of the pool is in use, from 0 to 1.
func (u poolUsage) utilization() float64 { return float64(u.inUse) / float64(u.capacity) }

// reason is the word for the pool's state, given the one it had ("" for none).
func (u poolUsage) reason(before string) string {
	switch share := u.utilization(); {
	case u.inUse >= u.capacity, before == v1.ReasonAddressesExhausted && share >= exhaustedClearThreshold:
		return v1.ReasonAddressesExhausted
	case share >= scarceThreshold, before != "" && before != v1.ReasonAddressesSufficient && share >= scarceClearThreshold:
		return v1.ReasonAddressesNearlyExhausted
	}
	return v1.ReasonAddressesSufficient
}

// poolUsages reads the bitmaps. A family whose bitmap is absent, of a former subnet or
// damaged says nothing, nor does one without a dynamic address.
func poolUsages(o *claims.Object, reserved []netip.Addr) []poolUsage {
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

// mostUtilized returns the family that is nearest to its end; false without any.
func mostUtilized(uses []poolUsage) (poolUsage, bool) {
	var worst poolUsage
	for i, u := range uses {
		if i == 0 || u.utilization() > worst.utilization() {
			worst = u
		}
	}
	return worst, len(uses) > 0
}
