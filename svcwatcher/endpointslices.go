// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Changes are writes. Slices to create have names and no resourceVersion; slices to update have the
// resourceVersion of the slice that they replace.
type Changes struct {
	Create, Update, Delete []discoveryv1.EndpointSlice
}

// Empty reports whether there is nothing to write.
func (c *Changes) Empty() bool { return len(c.Create)+len(c.Update)+len(c.Delete) == 0 }

// Plan computes the writes that turn the existing slices of a Service into the desired groups. An
// endpoint stays in its slice. New endpoints go into slices that are written anyway, else into one
// that has room for all of them, else into new slices. A slice that lost all its endpoints is
// reused before it is deleted. Existing has slices with our label only, and is not modified.
func Plan(svc *corev1.Service, groups []Group, existing []discoveryv1.EndpointSlice) Changes {
	p := &planner{svc: svc, names: newNamer(svc, existing), byGroup: map[string][]*draft{}, idle: map[discoveryv1.AddressType][]*draft{}}
	missing := p.reuseSlices(groups, existing)
	for i := range groups {
		p.placeMissing(&groups[i], missing[i])
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for _, d := range p.idle[family] {
			p.changes.Delete = append(p.changes.Delete, d.slice)
		}
	}
	return p.changes
}

// planner is the state of one Plan.
type planner struct {
	svc     *corev1.Service
	names   *namer
	byGroup map[string][]*draft
	// idle are the slices without endpoints, by their immutable family.
	idle    map[discoveryv1.AddressType][]*draft
	changes Changes
}

// reuseSlices keeps in the existing slices the endpoints that are still wanted. It returns the
// endpoints of each group that are in none.
func (p *planner) reuseSlices(groups []Group, existing []discoveryv1.EndpointSlice) (missing [][]discoveryv1.Endpoint) {
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
		p.reuseSlice(&sorted[i], wanted)
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

// reuseSlice keeps what is wanted of one existing slice, and removes that from wanted.
func (p *planner) reuseSlice(old *discoveryv1.EndpointSlice, wanted map[string]map[string]discoveryv1.Endpoint) {
	if old.DeletionTimestamp != nil {
		return // another owner's finalizer blocks its deletion
	}
	if !ownedBy(old.OwnerReferences, p.svc) {
		p.changes.Delete = append(p.changes.Delete, *old)
		return
	}
	key := groupKey(old.AddressType, old.Ports)
	d := &draft{slice: *old}
	d.slice.Endpoints = nil
	for _, e := range old.Endpoints {
		if len(e.Addresses) != 1 {
			continue // another writer changed it
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

// placeMissing puts the missing endpoints of a group into slices, and records the writes.
func (p *planner) placeMissing(g *Group, missing []discoveryv1.Endpoint) {
	drafts := p.byGroup[groupKey(g.Family, g.Ports)]
	slices.SortStableFunc(drafts, func(a, b *draft) int { return cmp.Compare(a.freeEndpoints(), b.freeEndpoints()) })
	for _, d := range drafts {
		if d.changed {
			missing = d.fill(missing)
		}
	}
	// The fullest slices come first, so that slices stay few.
	for _, d := range drafts {
		if len(missing) > 0 && !d.changed && d.freeEndpoints() >= len(missing) {
			missing = d.fill(missing)
		}
	}
	for _, d := range drafts {
		if d.changed {
			p.changes.Update = append(p.changes.Update, d.slice)
		}
	}
	for len(missing) > 0 {
		missing = p.placeInNewSlice(g, missing)
	}
}

// placeInNewSlice puts up to maxEndpoints into an idle or new slice, and returns the rest.
func (p *planner) placeInNewSlice(g *Group, missing []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	d := &draft{}
	reused := len(p.idle[g.Family]) > 0
	if reused {
		d = p.idle[g.Family][0]
		p.idle[g.Family] = p.idle[g.Family][1:]
	} else {
		d.slice.ObjectMeta = metav1.ObjectMeta{
			Namespace: p.svc.Namespace, Name: p.names.nextName(), OwnerReferences: []metav1.OwnerReference{ownerReference(p.svc)},
		}
		d.slice.AddressType = g.Family
	}
	d.slice.Labels, d.slice.Ports = labelsOf(p.svc), g.Ports
	rest := d.fill(missing)
	if reused {
		p.changes.Update = append(p.changes.Update, d.slice)
	} else {
		p.changes.Create = append(p.changes.Create, d.slice)
	}
	return rest
}

// draft is a slice that is being filled.
type draft struct {
	slice discoveryv1.EndpointSlice
	// changed is true when the slice is written anyway, so that another endpoint costs nothing.
	changed bool
}

func (d *draft) freeEndpoints() int { return maxEndpoints - len(d.slice.Endpoints) }

// fill moves endpoints into a slice until it is full, and returns the rest.
func (d *draft) fill(missing []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	n := min(d.freeEndpoints(), len(missing))
	d.slice.Endpoints = append(d.slice.Endpoints, missing[:n]...)
	d.changed = d.changed || n > 0
	return missing[n:]
}

// namer names new slices. A name depends only on the Service and a number: when the cache does not
// show a slice yet, a second creation fails instead of duplicating it.
type namer struct {
	svc   *corev1.Service
	taken map[string]bool
	next  int
}

func newNamer(svc *corev1.Service, existing []discoveryv1.EndpointSlice) *namer {
	n := &namer{svc: svc, taken: map[string]bool{}}
	for i := range existing {
		n.taken[existing[i].Name] = true
	}
	return n
}

func (n *namer) nextName() string {
	for {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", n.svc.UID, n.next))
		n.next++
		name := n.svc.Name + "-" + hex.EncodeToString(sum[:5])
		if !n.taken[name] {
			return name
		}
	}
}
