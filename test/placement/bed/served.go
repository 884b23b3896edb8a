// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// list asks for objects of the kind that a definition defines.
func list(ctx context.Context, d dynamic.Interface, definition *unstructured.Unstructured) error {
	for _, gvr := range resources(definition) {
		if _, err := d.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", gvr.Resource, err)
		}
	}
	return nil
}

// discovered returns an error until discovery has a definition in all its versions: that
// comes after it is served, and clients ask for it first.
func discovered(d discovery.ServerResourcesInterface, definition *unstructured.Unstructured) error {
	for _, gvr := range resources(definition) {
		known, err := d.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
		if err != nil {
			return fmt.Errorf("discover %s: %w", gvr.GroupVersion(), err)
		}
		if !slices.ContainsFunc(known.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }) {
			return fmt.Errorf("%s is not discovered in %s", gvr.Resource, gvr.GroupVersion())
		}
	}
	return nil
}

// resources are what a definition defines, one for each version.
func resources(definition *unstructured.Unstructured) []schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var all []schema.GroupVersionResource
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		all = append(all, schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
	}
	return all
}
