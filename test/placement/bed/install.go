// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

const pollInterval = 30 * time.Millisecond

// Install creates the objects of these kinds of a folder below deployments/, in the
// order of the kinds, and waits until definitions are served.
func Install(ctx context.Context, config *rest.Config, folder string, kinds ...string) error {
	path, err := source.Path("deployments", folder)
	if err != nil {
		return err
	}
	objects, err := apitest.ReadManifests(path)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, kind := range kinds {
		for _, o := range objects {
			if o.GetKind() != kind {
				continue
			}
			if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("install %s %s: %w", kind, o.GetName(), err)
			}
		}
	}
	return awaitServed(ctx, config, objects, kinds)
}

// awaitServed lists every kind that was defined, until the API server knows it.
func awaitServed(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured, kinds []string) error {
	const definition = "CustomResourceDefinition"
	if !slices.Contains(kinds, definition) {
		return nil
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() != definition {
			continue
		}
		var last error
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			if last = listServed(ctx, d, o); last == nil {
				last = checkDiscovery(discover, o)
			}
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("await definition %s: %w (last: %w)", o.GetName(), err, last)
		}
	}
	return nil
}

// listServed asks for objects of the kind that a definition defines.
func listServed(ctx context.Context, d dynamic.Interface, definition *unstructured.Unstructured) error {
	for _, gvr := range versionedResources(definition) {
		if _, err := d.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", gvr.Resource, err)
		}
	}
	return nil
}

// checkDiscovery returns an error until discovery has a definition in all its versions: that
// comes after it is served, and clients ask for it first.
func checkDiscovery(d discovery.ServerResourcesInterface, definition *unstructured.Unstructured) error {
	for _, gvr := range versionedResources(definition) {
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

// versionedResources are what a definition defines, one for each version.
func versionedResources(definition *unstructured.Unstructured) []schema.GroupVersionResource {
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
