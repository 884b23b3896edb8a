// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
			if last = list(ctx, d, o); last == nil {
				last = discovered(discover, o)
			}
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("await definition %s: %w (last: %w)", o.GetName(), err, last)
		}
	}
	return nil
}
