// SPDX-License-Identifier: Apache-2.0

package clusterranges

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Subnets of NICs with fewer bits than these count as the address alone: a single node writes its
// NodeNetwork, and must not block all addresses for all tenants.
const minSubnetBits4, minSubnetBits6 = 8, 32

// snapshot is the input of the ranges.
type snapshot struct {
	extraPodRanges []netip.Prefix
	nodes          []corev1.Node
	nodeNetworks   []v1.NodeNetwork
	services       []corev1.Service
	serviceCIDRs   []networkingv1.ServiceCIDR
	apiServers     []discoveryv1.EndpointSlice
}

// collect computes the ranges. It leaves out what cannot be parsed: the API server validates
// everything but NodeNetworks.
func (s *snapshot) collect() *network.ClusterRanges {
	var all []network.ClusterRange
	add := func(use network.RangePurpose, prefix netip.Prefix) {
		if prefix.IsValid() {
			all = append(all, network.ClusterRange{Prefix: prefix, Purpose: use})
		}
	}
	for _, p := range s.extraPodRanges {
		add(network.RangePods, p)
	}
	for i := range s.serviceCIDRs {
		for _, text := range s.serviceCIDRs[i].Spec.CIDRs {
			add(network.RangeServices, parsePrefix(text))
		}
	}
	for i := range s.services {
		for _, text := range s.services[i].Spec.ClusterIPs {
			add(network.RangeServices, parseAddress(text))
		}
	}
	for i := range s.nodes {
		for _, text := range s.nodes[i].Spec.PodCIDRs {
			add(network.RangePods, parsePrefix(text))
		}
		for _, a := range s.nodes[i].Status.Addresses {
			add(network.RangeNodes, parseAddress(a.Address)) // a host name is left out
		}
	}
	for i := range s.apiServers {
		for _, e := range s.apiServers[i].Endpoints {
			for _, text := range e.Addresses {
				add(network.RangeControlPlane, parseAddress(text))
			}
		}
	}
	s.addNICs(add)
	return network.NewClusterRanges(all)
}

// addNICs adds the addresses of the nodes' NICs, and last their subnets.
func (s *snapshot) addNICs(add func(network.RangePurpose, netip.Prefix)) {
	var subnets []netip.Prefix
	for i := range s.nodeNetworks {
		for _, nic := range s.nodeNetworks[i].Status.NICs {
			for _, text := range nic.Addresses {
				p := parsePrefix(text)
				if !p.IsValid() {
					continue
				}
				add(network.RangeNodes, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
				if p.Addr().Is4() && p.Bits() >= minSubnetBits4 || p.Addr().Is6() && p.Bits() >= minSubnetBits6 {
					subnets = append(subnets, p)
				}
			}
		}
	}
	for _, p := range subnets {
		add(network.RangeNodeSubnets, p)
	}
}

// parsePrefix parses a prefix with its host bits; the zero Prefix for anything else.
func parsePrefix(text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// parseAddress returns the prefix of one address; the zero Prefix for anything else.
func parseAddress(text string) netip.Prefix {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}
