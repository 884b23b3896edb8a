// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Network is a stretched ClusterNetwork as one cluster has it.
type Network struct {
	// VLAN and VXLAN identify the segment on the wire; 0 when not set.
	VLAN, VXLAN int
	// Subnets of the network: at most one of each family.
	Subnets []Subnet
}

// Subnet is a subnet with the addresses that the cluster assigns dynamically.
type Subnet struct {
	// CIDR is the subnet, masked.
	CIDR netip.Prefix
	// Start and End are the first and last dynamic addresses.
	Start, End netip.Addr
}

// inPool reports whether the cluster may assign an address dynamically.
func (s Subnet) inPool(a netip.Addr) bool {
	return s.CIDR.Contains(a) && !a.Less(s.Start) && !s.End.Less(a)
}

// Segment is one layer 2 segment that reaches several clusters.
type Segment struct {
	networks map[string]Network
	pools    []pool // by their first address; they do not overlap
}

// pool is the dynamic addresses of one cluster.
type pool struct {
	Subnet
	cluster string
}

// NewSegment returns the segment that these clusters share; an error if their networks do not prove that they share
// one, or if two of them would assign the same addresses.
func NewSegment(networks map[string]Network) (*Segment, error) {
	names := slices.Sorted(maps.Keys(networks))
	for i, name := range names {
		n := networks[name]
		if (n.VLAN == 0) == (n.VXLAN == 0) {
			return nil, fmt.Errorf("spec.Options in %s: must have vlan or vxlan", name)
		}
		for _, other := range names[:i] {
			if err := compatible(other, networks[other], name, n); err != nil {
				return nil, err
			}
		}
	}
	s := &Segment{networks: networks}
	for _, name := range names {
		for _, subnet := range networks[name].Subnets {
			if subnet.Start.IsValid() && !subnet.End.Less(subnet.Start) {
				s.pools = append(s.pools, pool{Subnet: subnet, cluster: name})
			}
		}
	}
	slices.SortFunc(s.pools, func(a, b pool) int { return a.Start.Compare(b.Start) })
	return s, nil
}

// compatible returns why two clusters do not share a segment, or may assign the same addresses.
func compatible(a string, x Network, b string, y Network) error {
	switch {
	case x.VLAN != y.VLAN:
		return fmt.Errorf("spec.Options.vlan: must be the same in %s and %s: got %d and %d", a, b, x.VLAN, y.VLAN)
	case x.VXLAN != y.VXLAN:
		return fmt.Errorf("spec.Options.vxlan: must be the same in %s and %s: got %d and %d", a, b, x.VXLAN, y.VXLAN)
	case len(x.Subnets) != len(y.Subnets):
		return fmt.Errorf("spec.Options.cidr, net6: must be the same in %s and %s", a, b)
	}
	for i, s := range x.Subnets {
		o := y.Subnets[i]
		switch {
		case s.CIDR != o.CIDR:
			return fmt.Errorf("spec.Options.cidr, net6: must be the same in %s and %s: got %s and %s", a, b, s.CIDR, o.CIDR)
		case !s.End.Less(o.Start) && !o.End.Less(s.Start):
			return fmt.Errorf("spec.Options.allocation_pool, allocation_pool_v6: must not overlap in %s and %s, which would assign the same addresses of %s: "+
				"got %s-%s and %s-%s", a, b, s.CIDR, s.Start, s.End, o.Start, o.End)
		}
	}
	return nil
}

// Reaches reports whether the segment reaches a cluster.
func (s *Segment) Reaches(cluster string) bool {
	_, ok := s.networks[cluster]
	return ok
}

// Subnets returns the subnets of the segment.
func (s *Segment) Subnets() (all []netip.Prefix) {
	for _, n := range s.networks {
		for _, subnet := range n.Subnets {
			all = append(all, subnet.CIDR)
		}
		return all // they are the same in all clusters
	}
	return nil
}

// contains reports whether an address is in the segment.
func (s *Segment) contains(a netip.Addr) bool {
	return slices.ContainsFunc(s.Subnets(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// poolOwner returns the cluster that assigns an address dynamically, or "".
func (s *Segment) poolOwner(a netip.Addr) string {
	i, ok := slices.BinarySearchFunc(s.pools, a, func(p pool, a netip.Addr) int { return p.Start.Compare(a) })
	if !ok {
		i-- // the last one that begins before
	}
	if i >= 0 && s.pools[i].inPool(a) {
		return s.pools[i].cluster
	}
	return ""
}
