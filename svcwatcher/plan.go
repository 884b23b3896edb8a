// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Changes are writes. Those to Create have names and no resourceVersion, those to
// Update the resourceVersion of the slice that they take the place of.
type Changes struct {
	Create, Update, Delete []discoveryv1.EndpointSlice
}

// None reports whether there is nothing to write.
func (c *Changes) None() bool { return len(c.Create)+len(c.Update)+len(c.Delete) == 0 }

// Plan computes the writes from the slices of ours that a Service has to the groups
// that it should have: an endpoint stays where it is; what is new goes to slices that
// are written anyway, else into one that has room for all of it, else into new ones;
// a slice that lost all of its endpoints is used for new ones before it is deleted.
// Existing holds slices with our label only; nothing of it is modified.
func Plan(svc *corev1.Service, groups []Group, existing []discoveryv1.EndpointSlice) Changes {
	p := &planner{svc: svc, names: newNamer(svc, existing), byGroup: map[string][]*draft{}, idle: map[discoveryv1.AddressType][]*draft{}}
	missing := p.keep(groups, existing)
	for i := range groups {
		p.fill(&groups[i], missing[i])
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for _, d := range p.idle[family] {
			p.out.Delete = append(p.out.Delete, d.slice)
		}
	}
	return p.out
}

// planner is the work on one Service.
type planner struct {
	svc     *corev1.Service
	names   *namer
	byGroup map[string][]*draft
	// idle are slices without an endpoint, by family, which never changes.
	idle map[discoveryv1.AddressType][]*draft
	out  Changes
}

// keep sorts the existing slices and leaves in them what is still wanted. It returns
// which endpoints of each group are in none.
func (p *planner) keep(groups []Group, existing []discoveryv1.EndpointSlice) (missing [][]discoveryv1.Endpoint) {
	wanted := map[string]map[string]discoveryv1.Endpoint{}
	for i := range groups {
		byAddress := map[string]discoveryv1.Endpoint{}
		for _, e := range groups[i].Endpoints {
			byAddress[e.Addresses[0]] = e
		}
		wanted[groupKey(groups[i].Family, groups[i].Ports)] = byAddress
	}
	sorted := slices.SortedFunc(slices.Values(existing), func(a, b discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for i := range sorted {
		p.sort(&sorted[i], wanted)
	}
	for i := range groups {
		var rest []discoveryv1.Endpoint
		left := wanted[groupKey(groups[i].Family, groups[i].Ports)]
		for _, e := range groups[i].Endpoints {
			if _, ok := left[e.Addresses[0]]; ok {
				rest = append(rest, e)
			}
		}
		missing = append(missing, rest)
	}
	return missing
}
