// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// discover asks the API server for the placeable kinds, each in the version that its
// group prefers. When a group cannot be read (its API service is down) its kinds are
// kept as they were.
func discover(d discovery.DiscoveryInterface, before []kind) (map[schema.GroupKind]kind, error) {
	groups, lists, err := d.ServerGroupsAndResources()
	failed, partial := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	if err != nil && !partial {
		return nil, fmt.Errorf("discover kinds: %w", err)
	}
	byVersion := map[string][]metav1.APIResource{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l.APIResources
	}
	served := map[schema.GroupKind]kind{}
	for _, g := range groups {
		versions := append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...)
		for _, v := range versions {
			addKinds(served, schema.GroupVersion{Group: g.Name, Version: v.Version}, byVersion[v.GroupVersion])
		}
	}
	for _, k := range before {
		if failed == nil {
			break
		}
		if _, ok := failed.Groups[k.GroupVersion()]; ok {
			served[k.GroupKind()] = k
		}
	}
	return served, nil
}

// addKinds adds the resources that are placeable and not there yet.
func addKinds(to map[schema.GroupKind]kind, gv schema.GroupVersion, list []metav1.APIResource) {
	subresources := map[string]bool{}
	for _, r := range list {
		subresources[r.Name] = true
	}
	for _, r := range list {
		gk := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
		_, there := to[gk]
		if there || slices.Contains([]byte(r.Name), '/') || !policy.Placeable(gk, r.Namespaced) || !usable(r.Verbs) {
			continue
		}
		to[gk] = kind{
			GroupVersionKind: gv.WithKind(r.Kind), resource: r.Name, namespaced: r.Namespaced,
			hasStatus: subresources[r.Name+"/status"],
		}
	}
}

// usable says that objects can be listed, watched and written.
func usable(verbs []string) bool {
	for _, v := range []string{"list", "watch", "get", "patch"} {
		if !slices.Contains(verbs, v) {
			return false
		}
	}
	return true
}
