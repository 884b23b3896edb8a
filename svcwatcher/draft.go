// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// draft is a slice in the making.
type draft struct {
	slice discoveryv1.EndpointSlice
	// changed says that it is written anyway, so that more in it costs nothing.
	changed bool
}

func (d *draft) room() int { return MaxEndpoints - len(d.slice.Endpoints) }

// sort decides on one existing slice, and takes what it keeps out of wanted.
func (p *planner) sort(old *discoveryv1.EndpointSlice, wanted map[string]map[string]discoveryv1.Endpoint) {
	if old.DeletionTimestamp != nil {
		return // somebody else's finalizer is on it
	}
	if !owned(old.OwnerReferences, p.svc) {
		p.out.Delete = append(p.out.Delete, *old)
		return
	}
	key := groupKey(old.AddressType, old.Ports)
	d := &draft{slice: *old}
	d.slice.Endpoints = nil
	for _, e := range old.Endpoints {
		if len(e.Addresses) != 1 {
			continue // nobody of ours wrote it
		}
		now, ok := wanted[key][e.Addresses[0]]
		if !ok {
			continue
		}
		delete(wanted[key], e.Addresses[0])
		d.slice.Endpoints = append(d.slice.Endpoints, now)
		d.changed = d.changed || !equality.Semantic.DeepEqual(now, e)
	}
	if len(d.slice.Endpoints) == 0 {
		p.idle[old.AddressType] = append(p.idle[old.AddressType], d)
		return
	}
	labels := labelsOf(p.svc)
	d.changed = d.changed || len(d.slice.Endpoints) != len(old.Endpoints) || !equality.Semantic.DeepEqual(labels, old.Labels)
	d.slice.Labels = labels
	p.byGroup[key] = append(p.byGroup[key], d)
}
