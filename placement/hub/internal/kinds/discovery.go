// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// Discover asks the API server for the placeable kinds, each in its group's preferred version.
// When a group cannot be read, for example because its extension API server is down, it keeps the
// kinds that the group had in previous.
func Discover(d discovery.DiscoveryInterface, previous []Kind) (map[schema.GroupKind]Kind, error) {
	groups, lists, err := d.ServerGroupsAndResources()
	failed, partial := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	if err != nil && !partial {
		return nil, fmt.Errorf("discover kinds: %w", err)
	}
	byVersion := map[string][]metav1.APIResource{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l.APIResources
	}
	served := map[schema.GroupKind]Kind{}
	for _, g := range groups {
		versions := append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...)
		for _, v := range versions {
			addPlaceable(served, schema.GroupVersion{Group: g.Name, Version: v.Version}, byVersion[v.GroupVersion])
		}
	}
	if failed != nil {
		for _, k := range previous {
			if _, ok := failed.Groups[k.GroupVersion()]; ok {
				served[k.GroupKind()] = k
			}
		}
	}
	return served, nil
}

// addPlaceable adds the placeable resources of one version whose kinds no earlier version has.
func addPlaceable(served map[schema.GroupKind]Kind, gv schema.GroupVersion, resources []metav1.APIResource) {
	names := map[string]bool{} // with those of subresources
	for _, r := range resources {
		names[r.Name] = true
	}
	for _, r := range resources {
		gk := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
		_, known := served[gk]
		if known || strings.Contains(r.Name, "/") || !policy.Placeable(gk, r.Namespaced) || !hasRequiredVerbs(r.Verbs) {
			continue
		}
		served[gk] = Kind{
			GroupVersionKind: gv.WithKind(r.Kind), Resource: r.Name, Namespaced: r.Namespaced,
			HasStatus: names[r.Name+"/status"],
		}
	}
}

// hasRequiredVerbs reports whether the hub can list, watch, read and write objects.
func hasRequiredVerbs(verbs []string) bool {
	for _, v := range []string{"list", "watch", "get", "patch"} {
		if !slices.Contains(verbs, v) {
			return false
		}
	}
	return true
}
