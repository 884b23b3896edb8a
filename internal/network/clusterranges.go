// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// RangePurpose is what the cluster uses a range of addresses for.
type RangePurpose string

// Uses of a ClusterRange, in the words of messages.
const (
	// RangePods is for the Pods' first interfaces.
	RangePods RangePurpose = "Pods"
	// RangeServices is for cluster IPs.
	RangeServices RangePurpose = "Services"
	// RangeNodes are the nodes' own addresses.
	RangeNodes RangePurpose = "nodes"
	// RangeControlPlane are the addresses of API servers.
	RangeControlPlane RangePurpose = "its control plane"
	// RangeNodeSubnets are the subnets that the nodes' NICs are in. Other machines are in
	// them too, and so may the Pods of a netadmin's network be, but no tenant's.
	RangeNodeSubnets RangePurpose = "the subnets of its nodes"
)

// ClusterRange is a range of addresses that the cluster itself uses.
type ClusterRange struct {
	// Prefix is masked.
	Prefix netip.Prefix
	// Purpose is what for.
	Purpose RangePurpose
}

// String is for messages: 10.96.0.0/16, which the cluster uses for Services.
func (r ClusterRange) String() string {
	return fmt.Sprintf("%s, which the cluster uses for %s", r.Prefix, r.Purpose)
}

// ClusterRanges are all ranges that the cluster itself uses. No tenant chooses a subnet
// that overlaps one, and no address in one is published for a Service: clients and
// ingress controllers would be led to other Pods, to nodes, or to the API server
// (CVE-2021-25740). It does not change; the zero value has no ranges.
type ClusterRanges struct {
	purposes map[netip.Prefix]RangePurpose
	// lengths of the prefixes, so that an address is found by as many look-ups.
	lengths4, lengths6 []int
}

// NewClusterRanges returns the ranges. Of several uses of one prefix the first counts.
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
	for p, use := range c.purposes {
		if other, ok := o.purposes[p]; !ok || other != use {
			return false
		}
	}
	return true
}

// Containing returns the ranges that an address is in, the largest first.
func (c *ClusterRanges) Containing(a netip.Addr) []ClusterRange {
	return c.containingPrefix(netip.PrefixFrom(a, a.BitLen()))
}

// containingPrefix returns the ranges that a whole prefix is in.
func (c *ClusterRanges) containingPrefix(p netip.Prefix) []ClusterRange {
	var found []ClusterRange
	for _, bits := range *c.lengths(p.Addr()) {
		if bits > p.Bits() {
			break
		}
		outer := netip.PrefixFrom(p.Addr(), bits).Masked()
		if use, ok := c.purposes[outer]; ok {
			found = append(found, ClusterRange{Prefix: outer, Purpose: use})
		}
	}
	return found
}

// Overlapping returns a range that a subnet overlaps: the largest that it is in, else the
// first that is in it. It looks at all ranges.
func (c *ClusterRanges) Overlapping(subnet netip.Prefix) (ClusterRange, bool) {
	if outer := c.containingPrefix(subnet); len(outer) > 0 {
		return outer[0], true
	}
	var first ClusterRange
	for p, use := range c.purposes {
		if subnet.Overlaps(p) && (!first.Prefix.IsValid() || sortsBefore(p, first.Prefix)) {
			first = ClusterRange{Prefix: p, Purpose: use}
		}
	}
	return first, first.Prefix.IsValid()
}

func sortsBefore(a, b netip.Prefix) bool {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits())) < 0
}
