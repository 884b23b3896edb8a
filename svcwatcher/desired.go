// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	endpointutil "k8s.io/endpointslice/util"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// candidate is an address that a Pod has on one of the Service's networks.
type candidate struct {
	address netip.Addr
	pod     *corev1.Pod
	serving bool
}

// Endpoints are what a Service should have.
type Endpoints struct {
	// Groups are sorted.
	Groups []Group
	// Withheld are the addresses that must not be published, sorted.
	Withheld []Withheld
}

// Desired computes the endpoints that a Service should have: the union of its
// networks, of each address once.
func Desired(s *Source) Endpoints {
	interfaces := s.interfaces()
	chosen := map[netip.Addr]candidate{}
	var out Endpoints
	for _, pod := range s.selected() {
		serving := endpointutil.IsPodReady(pod)
		for _, ep := range interfaces[placeOf(pod)] {
			n := s.networkOf(ep)
			if n == nil {
				continue
			}
			for _, a := range addresses(ep) {
				if !s.wants(a) {
					continue
				}
				if rule := s.rule(n, pod, a); rule != "" {
					out.Withheld = append(out.Withheld, Withheld{Network: n.Ref, Pod: pod.Name, Address: a, Rule: rule})
					continue
				}
				c := candidate{address: a, pod: pod, serving: serving}
				if other, taken := chosen[a]; !taken || c.before(other) {
					chosen[a] = c
				}
			}
		}
	}
	groups := grouping{}
	for _, c := range chosen {
		groups.add(familyOf(c.address), portsOf(s.Service, c.pod), s.endpoint(c))
	}
	out.Groups = groups.sorted()
	slices.SortFunc(out.Withheld, func(a, b Withheld) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.String(), b.String()))
	})
	return out
}

// networkOf returns the network of the Service that a DanmEp is on; nil for another one,
// and for one that was made on a former network of that name.
func (s *Source) networkOf(ep *v1.DanmEp) *network.Network {
	ref := network.Ref{Kind: cmp.Or(ep.Spec.APIType, v1.KindDanmNet), Name: ep.Spec.NetworkName}
	if ref.Kind != v1.KindClusterNetwork {
		ref.Namespace = ep.Namespace
	}
	n := s.Networks[ref]
	if n == nil || !slices.Contains(s.Request.Networks, ref) || ep.Spec.NetworkUID != "" && ep.Spec.NetworkUID != n.UID {
		return nil
	}
	return n
}

// wants reports whether the Service has the family of an address; one without
// families was stored before there were any, and has both.
func (s *Source) wants(a netip.Addr) bool {
	family := corev1.IPv6Protocol
	if a.Is4() {
		family = corev1.IPv4Protocol
	}
	return len(s.Service.Spec.IPFamilies) == 0 || slices.Contains(s.Service.Spec.IPFamilies, family)
}

// before says which of two Pods with one address, on networks that never meet, has it
// here: one that serves.
func (c candidate) before(other candidate) bool {
	if c.serving != other.serving {
		return c.serving
	}
	return cmp.Or(strings.Compare(c.pod.Name, other.pod.Name), strings.Compare(string(c.pod.UID), string(other.pod.UID))) < 0
}

// addresses are those of an interface that an EndpointSlice may have: the API server
// refuses a slice as a whole for one address that means something else on each link.
func addresses(ep *v1.DanmEp) []netip.Addr {
	var all []netip.Addr
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue // most have one family only
		}
		a := prefix.Addr().Unmap()
		if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
			continue
		}
		all = append(all, a)
	}
	return all
}

func familyOf(a netip.Addr) discoveryv1.AddressType {
	if a.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}
