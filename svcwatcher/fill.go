// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"cmp"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fill places what a group misses, and says what is written of it.
func (p *planner) fill(g *Group, missing []discoveryv1.Endpoint) {
	drafts := p.byGroup[groupKey(g.Family, g.Ports)]
	slices.SortStableFunc(drafts, func(a, b *draft) int { return cmp.Compare(a.room(), b.room()) })
	for _, d := range drafts {
		if d.changed {
			missing = d.take(missing)
		}
	}
	// The fullest first: holes are filled, and slices stay few.
	for _, d := range drafts {
		if len(missing) > 0 && !d.changed && d.room() >= len(missing) {
			missing = d.take(missing)
		}
	}
	for _, d := range drafts {
		if d.changed {
			p.out.Update = append(p.out.Update, d.slice)
		}
	}
	for len(missing) > 0 {
		missing = p.open(g, missing)
	}
}

// take moves endpoints into a slice until it is full, and returns the rest.
func (d *draft) take(missing []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	n := min(d.room(), len(missing))
	d.slice.Endpoints = append(d.slice.Endpoints, missing[:n]...)
	d.changed = d.changed || n > 0
	return missing[n:]
}

// open uses an idle slice, or makes one, for up to MaxEndpoints.
func (p *planner) open(g *Group, missing []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	d := &draft{}
	reused := len(p.idle[g.Family]) > 0
	if reused {
		d = p.idle[g.Family][0]
		p.idle[g.Family] = p.idle[g.Family][1:]
	} else {
		d.slice.ObjectMeta = metav1.ObjectMeta{
			Namespace: p.svc.Namespace, Name: p.names.name(), OwnerReferences: []metav1.OwnerReference{owner(p.svc)},
		}
		d.slice.AddressType = g.Family
	}
	d.slice.Labels, d.slice.Ports = labelsOf(p.svc), g.Ports
	rest := d.take(missing)
	if reused {
		p.out.Update = append(p.out.Update, d.slice)
	} else {
		p.out.Create = append(p.out.Create, d.slice)
	}
	return rest
}
