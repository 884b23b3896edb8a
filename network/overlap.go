// SPDX-License-Identifier: Apache-2.0

package network

import "fmt"

// segment is the layer 2 segment that a network is on, as far as its spec tells:
// the same device or device pool and the same VLAN or VXLAN.
type segment struct {
	device, pool string
	vlan, vxlan  int
}

// segment returns false for a network without a device: nothing tells where it is.
func (n *Network) segment() (segment, bool) {
	if n.VXLAN != 0 && n.Device != "" {
		return segment{vxlan: n.VXLAN}, true // one VNI is one segment, whatever NIC it is on
	}
	s := segment{device: n.Device, pool: n.DevicePool, vlan: n.VLAN, vxlan: n.VXLAN}
	return s, n.Device != "" || n.DevicePool != ""
}

// overlap says why the pools of n and the older network o on the same segment
// could give one address twice. Disjoint pools of one subnet are fine.
func overlap(n, o *Network) error {
	for _, pair := range []struct {
		field   string
		ours, s *Subnet
	}{{"allocation_pool", n.V4, o.V4}, {"allocation_pool_v6", n.V6, o.V6}} {
		if pair.ours == nil || pair.s == nil || !pair.ours.overlaps(pair.s) {
			continue
		}
		ours := fmt.Sprintf("%s-%s", pair.ours.Start, pair.ours.End)
		return n.conflict(ErrPoolOverlap, optionPath(pair.field), ours, "%s of %s is %s, and %s on the same segment has %s-%s: use disjoint pools",
			pair.field, n.Ref, ours, n.nameOf(o), pair.s.Start, pair.s.End)
	}
	return nil
}

func (s *Subnet) overlaps(o *Subnet) bool {
	return !s.End.Less(o.Start) && !o.End.Less(s.Start)
}
