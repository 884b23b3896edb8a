// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a placeable kind, as the API server serves it.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
	hasStatus  bool
}

// metadata returns an empty object, for watches of this kind.
func metadata(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// kinds are the placeable kinds that are served now.
type kinds struct {
	mu    sync.RWMutex
	known map[schema.GroupKind]kind // nil: nobody has looked yet
}

// looked says whether the API server was asked yet.
func (k *kinds) looked() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.known != nil
}

// get returns a kind, and whether it is placeable and served.
func (k *kinds) get(gk schema.GroupKind) (kind, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	found, ok := k.known[gk]
	return found, ok
}

// all returns the kinds that are served.
func (k *kinds) all() []kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	list := make([]kind, 0, len(k.known))
	for _, found := range k.known {
		list = append(list, found)
	}
	return list
}

// forget makes the next set return a kind as new again.
func (k *kinds) forget(gk schema.GroupKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, gk)
}

// set replaces what is served and returns what is new and what is gone (or is served
// in another version now).
func (k *kinds) set(served map[schema.GroupKind]kind) (added, gone []kind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for gk, now := range served {
		if before, ok := k.known[gk]; !ok || before.GroupVersionKind != now.GroupVersionKind {
			added = append(added, now)
		}
	}
	for gk, before := range k.known {
		if now, ok := served[gk]; !ok || before.GroupVersionKind != now.GroupVersionKind {
			gone = append(gone, before)
		}
	}
	k.known = served
	return added, gone
}
