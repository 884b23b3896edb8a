// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Group are endpoints that can stand in one slice: of one family, on the same ports.
type Group struct {
	Family discoveryv1.AddressType
	Ports  []discoveryv1.EndpointPort
	// Endpoints have one address each, and are sorted by it.
	Endpoints []discoveryv1.Endpoint
}

// grouping sorts endpoints into groups, by what a slice has but once.
type grouping map[string]*Group

func (g grouping) add(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, e discoveryv1.Endpoint) {
	key := groupKey(family, ports)
	if g[key] == nil {
		g[key] = &Group{Family: family, Ports: ports}
	}
	g[key].Endpoints = append(g[key].Endpoints, e)
}

// sorted returns the groups in an order that depends on nothing else.
func (g grouping) sorted() []Group {
	all := make([]Group, 0, len(g))
	for _, key := range slices.Sorted(maps.Keys(g)) {
		slices.SortFunc(g[key].Endpoints, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
		all = append(all, *g[key])
	}
	return all
}

// groupKey tells family and ports apart. (The hash that k8s.io/endpointslice takes of
// them costs more than all the rest.)
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

// portText tells "all ports", which a slice of others can have, from port 0.
func portText(p *int32) string {
	if p == nil {
		return "*"
	}
	return fmt.Sprintf("%05d", *p) // as text they sort as numbers do
}

func valueOrZero[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
