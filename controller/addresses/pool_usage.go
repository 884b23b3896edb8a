// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"net/netip"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// Shares of a pool at which its condition changes. Between the two of a pair it
// stays as it was, so that one Pod that comes and goes writes nothing.
const (
	scarceFrom   = 0.90 // Scarce at this share and above,
	enoughBelow  = 0.85 // Enough again below this one.
	relievedFrom = 0.98 // Exhausted at all of it, until its use is below this share.
)

// use is how much of one family's dynamic addresses is in use or held.
type use struct {
	// family is IPv4 or IPv6.
	family string
	// inUse and capacity are numbers of addresses; capacity saturates at 2^63-1.
	inUse, capacity int64
}

// share is how much of the pool is in use, from 0 to 1.
func (u use) share() float64 { return float64(u.inUse) / float64(u.capacity) }

// reason is the word for the pool's state, given the one it had ("" for none).
func (u use) reason(before string) string {
	switch share := u.share(); {
	case u.inUse >= u.capacity, before == v1.ReasonExhausted && share >= relievedFrom:
		return v1.ReasonExhausted
	case share >= scarceFrom, before != "" && before != v1.ReasonEnough && share >= enoughBelow:
		return v1.ReasonScarce
	}
	return v1.ReasonEnough
}

// usesOf reads the bitmaps. A family whose bitmap is absent, of a former subnet or
// damaged says nothing, nor does one without a dynamic address.
func usesOf(o *claims.Object, reserved []netip.Addr) []use {
	if o.IPAM == nil || o.Invalid != nil || o.Network.Delegates() {
		return nil
	}
	var uses []use
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
			uses = append(uses, use{f.name, pool.InUse(), pool.Capacity()})
		}
	}
	return uses
}

// fullest returns the family that is nearest to its end; false without any.
func fullest(uses []use) (use, bool) {
	var worst use
	for i, u := range uses {
		if i == 0 || u.share() > worst.share() {
			worst = u
		}
	}
	return worst, len(uses) > 0
}
