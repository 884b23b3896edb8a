// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Group is endpoints that may be in one slice: one address family, and the same ports.
type Group struct {
	Family discoveryv1.AddressType
	Ports  []discoveryv1.EndpointPort
	// Endpoints have one address each, and are sorted by it.
	Endpoints []discoveryv1.Endpoint
}

// grouping collects endpoints by the fields that a slice has once.
type grouping map[string]*Group

func (g grouping) add(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, e discoveryv1.Endpoint) {
	key := groupKey(family, ports)
	if g[key] == nil {
		g[key] = &Group{Family: family, Ports: ports}
	}
	g[key].Endpoints = append(g[key].Endpoints, e)
}

// sorted returns the groups in a deterministic order.
func (g grouping) sorted() []Group {
	all := make([]Group, 0, len(g))
	for _, key := range slices.Sorted(maps.Keys(g)) {
		slices.SortFunc(g[key].Endpoints, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
		all = append(all, *g[key])
	}
	return all
}

// groupKey encodes family and ports. The hash that k8s.io/endpointslice computes of them would cost
// more than the rest of this package.
func groupKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	var b strings.Builder
	b.WriteString(string(family))
	for _, p := range ports {
		fmt.Fprintf(&b, " %q/%s/%s", valueOrZero(p.Name), portText(p.Port), valueOrZero(p.Protocol))
		if p.AppProtocol != nil {
			fmt.Fprintf(&b, "/%q", *p.AppProtocol)
		}
	}
	return b.String()
}

// portText distinguishes "all ports", which slices of other owners may have, from port 0.
func portText(p *int32) string {
	if p == nil {
		return "*"
	}
	return fmt.Sprintf("%05d", *p) // padded to sort as numbers
}

func valueOrZero[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
