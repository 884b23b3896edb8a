// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// RangePurpose is the cluster's purpose of an address range.
type RangePurpose string

// Purposes of a ClusterRange, in the words of messages.
const (
	// RangePods has the addresses of the Pods' first interfaces.
	RangePods RangePurpose = "Pods"
	// RangeServices has the cluster IPs of Services.
	RangeServices RangePurpose = "Services"
	// RangeNodes has the nodes' own addresses.
	RangeNodes RangePurpose = "nodes"
	// RangeControlPlane has the addresses of API servers.
	RangeControlPlane RangePurpose = "its control plane"
	// RangeNodeSubnets has the subnets of the nodes' NICs. Other machines are in them too. Pods of
	// a netadmin's network may be in them, and Pods of TenantNetworks may not.
	RangeNodeSubnets RangePurpose = "the subnets of its nodes"
)

// ClusterRange is a range of addresses that the cluster itself uses.
type ClusterRange struct {
	// Prefix is masked.
	Prefix netip.Prefix
	// Purpose of the range.
	Purpose RangePurpose
}

// String returns a text for messages, such as "10.96.0.0/16, which the cluster uses for Services".
func (r ClusterRange) String() string {
	return fmt.Sprintf("%s, which the cluster uses for %s", r.Prefix, r.Purpose)
}

// ClusterRanges has all ranges that the cluster itself uses. A TenantNetwork must not overlap one, and
// no address in one is published for a Service: clients and ingress controllers would reach other
// Pods, nodes, or the API server (CVE-2021-25740). It is immutable; the zero value has no ranges.
type ClusterRanges struct {
	purposes map[netip.Prefix]RangePurpose
	// lengths of the prefixes in ascending order: a search for an address needs one look-up each.
	lengths4, lengths6 []int
}

// NewClusterRanges returns the ranges. Of several purposes of one prefix, the first one counts.
func NewClusterRanges(ranges []ClusterRange) *ClusterRanges {
	c := &ClusterRanges{purposes: make(map[netip.Prefix]RangePurpose, len(ranges))}
	for _, r := range ranges {
		p := r.Prefix.Masked()
		if _, known := c.purposes[p]; known || !p.IsValid() {
			continue
		}
		c.purposes[p] = r.Purpose
		lengths := c.lengths(p.Addr())
		if at, found := slices.BinarySearch(*lengths, p.Bits()); !found {
			*lengths = slices.Insert(*lengths, at, p.Bits())
		}
	}
	return c
}

func (c *ClusterRanges) lengths(a netip.Addr) *[]int {
	if a.Is4() {
		return &c.lengths4
	}
	return &c.lengths6
}

// Equal reports whether both are the same ranges.
func (c *ClusterRanges) Equal(o *ClusterRanges) bool {
	if len(c.purposes) != len(o.purposes) {
		return false
	}
	for p, purpose := range c.purposes {
		if other, ok := o.purposes[p]; !ok || other != purpose {
			return false
		}
	}
	return true
}

// Containing returns the ranges that contain an address, the largest first.
func (c *ClusterRanges) Containing(a netip.Addr) []ClusterRange {
	return c.containingPrefix(netip.PrefixFrom(a, a.BitLen()))
}

// containingPrefix returns the ranges that contain a prefix, the largest first.
func (c *ClusterRanges) containingPrefix(p netip.Prefix) []ClusterRange {
	var found []ClusterRange
	for _, bits := range *c.lengths(p.Addr()) {
		if bits > p.Bits() {
			break
		}
		outer := netip.PrefixFrom(p.Addr(), bits).Masked()
		if purpose, ok := c.purposes[outer]; ok {
			found = append(found, ClusterRange{Prefix: outer, Purpose: purpose})
		}
	}
	return found
}

// Overlapping returns a range that a subnet overlaps: the largest that contains it, or else the first
// in it. Its cost is linear in the number of ranges.
func (c *ClusterRanges) Overlapping(subnet netip.Prefix) (ClusterRange, bool) {
	if outer := c.containingPrefix(subnet); len(outer) > 0 {
		return outer[0], true
	}
	var first ClusterRange
	for p, purpose := range c.purposes {
		if subnet.Overlaps(p) && (!first.Prefix.IsValid() || sortsBefore(p, first.Prefix)) {
			first = ClusterRange{Prefix: p, Purpose: purpose}
		}
	}
	return first, first.Prefix.IsValid()
}

func sortsBefore(a, b netip.Prefix) bool {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits())) < 0
}
