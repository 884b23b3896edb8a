// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// RangeUse is what the cluster uses a range of addresses for.
type RangeUse string

// Uses of a ClusterRange, in the words of messages.
const (
	// RangePods is for the Pods' first interfaces.
	RangePods RangeUse = "Pods"
	// RangeServices is for cluster IPs.
	RangeServices RangeUse = "Services"
	// RangeNodes are the nodes' own addresses.
	RangeNodes RangeUse = "nodes"
	// RangeControlPlane are the addresses of API servers.
	RangeControlPlane RangeUse = "its control plane"
	// RangeNodeSubnets are the subnets that the nodes' NICs are in. Other machines are in
	// them too, and so may the Pods of a netadmin's network be, but no tenant's.
	RangeNodeSubnets RangeUse = "the subnets of its nodes"
)

// ClusterRange is a range of addresses that the cluster itself uses.
type ClusterRange struct {
	// Prefix is masked.
	Prefix netip.Prefix
	// Use is what for.
	Use RangeUse
}

// String is for messages: 10.96.0.0/16, which the cluster uses for Services.
func (r ClusterRange) String() string {
	return fmt.Sprintf("%s, which the cluster uses for %s", r.Prefix, r.Use)
}

// ClusterRanges are all ranges that the cluster itself uses. No tenant chooses a subnet
// that overlaps one, and no address in one is published for a Service: clients and
// ingress controllers would be led to other Pods, to nodes, or to the API server
// (CVE-2021-25740). It does not change; the zero value has no ranges.
type ClusterRanges struct {
	uses map[netip.Prefix]RangeUse
	// lengths of the prefixes, so that an address is found by as many look-ups.
	lengths4, lengths6 []int
}

// NewClusterRanges returns the ranges. Of several uses of one prefix the first counts.
func NewClusterRanges(ranges []ClusterRange) *ClusterRanges {
	c := &ClusterRanges{uses: make(map[netip.Prefix]RangeUse, len(ranges))}
	for _, r := range ranges {
		p := r.Prefix.Masked()
		if _, known := c.uses[p]; known || !p.IsValid() {
			continue
		}
		c.uses[p] = r.Use
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
	if len(c.uses) != len(o.uses) {
		return false
	}
	for p, use := range c.uses {
		if other, ok := o.uses[p]; !ok || other != use {
			return false
		}
	}
	return true
}

// Containing returns the ranges that an address is in, the largest first.
func (c *ClusterRanges) Containing(a netip.Addr) []ClusterRange {
	return c.covering(netip.PrefixFrom(a, a.BitLen()))
}

// covering returns the ranges that a whole prefix is in.
func (c *ClusterRanges) covering(p netip.Prefix) []ClusterRange {
	var found []ClusterRange
	for _, bits := range *c.lengths(p.Addr()) {
		if bits > p.Bits() {
			break
		}
		outer := netip.PrefixFrom(p.Addr(), bits).Masked()
		if use, ok := c.uses[outer]; ok {
			found = append(found, ClusterRange{Prefix: outer, Use: use})
		}
	}
	return found
}

// Overlapping returns a range that a subnet overlaps: the largest that it is in, else the
// first that is in it. It looks at all ranges.
func (c *ClusterRanges) Overlapping(subnet netip.Prefix) (ClusterRange, bool) {
	if outer := c.covering(subnet); len(outer) > 0 {
		return outer[0], true
	}
	var first ClusterRange
	for p, use := range c.uses {
		if subnet.Overlaps(p) && (!first.Prefix.IsValid() || sortsBefore(p, first.Prefix)) {
			first = ClusterRange{Prefix: p, Use: use}
		}
	}
	return first, first.Prefix.IsValid()
}

func sortsBefore(a, b netip.Prefix) bool {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits())) < 0
}
