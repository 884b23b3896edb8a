// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"net/netip"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// countPools counts the dynamic addresses of a network's families, IPv4 first. A missing bitmap
// counts as empty, beside the DanmEps and the nodes' entries, and so does one of another subnet, which
// the next claim replaces. A family keeps the numbers of before while its bitmap is damaged, or while
// owned addresses outside of its subnet forbid claims. One without a dynamic address has none.
func countPools(o *status.Object, before []v1.PoolStatus, endpoints []status.Endpoint, reserved []netip.Addr) []v1.PoolStatus {
	v4, v6 := o.Subnets()
	recorded := o.IPAM
	if recorded == nil {
		recorded = &v1.IPAMStatus{}
	}
	owners := ownersOf(o, endpoints)
	var pools []v1.PoolStatus
	for _, f := range []struct {
		name   string
		subnet *network.Subnet
		bitmap *v1.AddressBitmap
	}{{"IPv4", v4, recorded.V4}, {"IPv6", v6, recorded.V6}} {
		if f.subnet == nil {
			continue
		}
		pool, err := owners.openPool(f.subnet, f.bitmap, reserved)
		if i := slices.IndexFunc(before, func(p v1.PoolStatus) bool { return p.Family == f.name }); err != nil && i >= 0 {
			pools = append(pools, before[i])
		}
		if err == nil && pool.Capacity() > 0 {
			pools = append(pools, owners.count(f.name, pool))
		}
	}
	return pools
}

// addressOwners are the addresses of a network that are owned.
type addressOwners struct {
	// inUse are those of DanmEps. warm are those that nodes have pre-allocated, without those in
	// quarantine. Both may have addresses outside of the subnet.
	inUse, warm map[netip.Addr]bool
	// quarantined are those that no Pod gets because another machine uses them.
	quarantined map[netip.Addr]bool
}

// ownersOf collects the owners of a network's addresses. It ignores entries that cannot be read,
// which the audit reports.
func ownersOf(o *status.Object, endpoints []status.Endpoint) addressOwners {
	owners := addressOwners{inUse: map[netip.Addr]bool{}, warm: map[netip.Addr]bool{}, quarantined: map[netip.Addr]bool{}}
	for _, ep := range endpoints {
		if ep.Of(o.UID) {
			owners.inUse[ep.V4], owners.inUse[ep.V6] = true, true
		}
	}
	if o.IPAM == nil {
		return owners
	}
	for name, held := range o.IPAM.Held {
		entry, err := status.ParseEntry(held)
		if err != nil {
			continue
		}
		for _, a := range entry.Addrs() {
			switch {
			case owners.inUse[a]:
			case !status.IsNode(name) || entry.IsQuarantined(a):
				owners.quarantined[a] = true
			default:
				owners.warm[a] = true
			}
		}
	}
	return owners
}

// errOutsideSubnet means that addresses outside of the present subnet have an owner.
var errOutsideSubnet = errors.New("addresses of the former subnet are in use")

// openPool decodes the bitmap of a subnet. One that is missing or of another subnet is empty.
func (owners addressOwners) openPool(subnet *network.Subnet, bitmap *v1.AddressBitmap, reserved []netip.Addr) (*ipam.Pool, error) {
	cfg := ipam.Config{CIDR: subnet.CIDR, Start: subnet.Start, End: subnet.End, Reserved: slices.Concat(reserved, subnet.Gateways())}
	switch {
	case bitmap == nil:
		return ipam.New(cfg)
	case bitmap.CIDR == subnet.CIDR.String():
		return ipam.Decode(cfg, ipam.State{CIDR: bitmap.CIDR, Cursor: bitmap.Cursor, Pages: bitmap.Pages})
	case owners.anyOutside(subnet.CIDR):
		return nil, errOutsideSubnet
	}
	return ipam.New(cfg)
}

// anyOutside reports whether an address of the subnet's family is owned that is not in the subnet.
func (owners addressOwners) anyOutside(subnet netip.Prefix) bool {
	for _, set := range []map[netip.Addr]bool{owners.inUse, owners.warm, owners.quarantined} {
		for a := range set {
			if a.BitLen() == subnet.Addr().BitLen() && !subnet.Contains(a) {
				return true
			}
		}
	}
	return false
}

// count counts the addresses of one family. It sets the bits of owned addresses in pool.
func (owners addressOwners) count(family string, pool *ipam.Pool) v1.PoolStatus {
	counted := func(set map[netip.Addr]bool) (n int64) {
		for a := range set {
			if pool.IsAllocatable(a) {
				pool.MarkAllocated(a)
				n++
			}
		}
		return n
	}
	p := v1.PoolStatus{
		Family: family, Capacity: pool.Capacity(), Reserved: pool.ReservedDynamic(),
		InUse: counted(owners.inUse), Warm: counted(owners.warm),
	}
	counted(owners.quarantined)
	used := pool.AllocatedDynamic()
	p.Cooldown, p.Free = used-p.InUse-p.Warm, p.Capacity-used
	return p
}
