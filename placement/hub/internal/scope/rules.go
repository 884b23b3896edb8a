// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// Rules are the compiled Customizations for one namespace.
type Rules struct {
	version  string
	compiled *render.Rules // nil: there are none
}

// Apply customizes an object for a cluster, in place.
func (r *Rules) Apply(o *unstructured.Unstructured, c *v1alpha1.Cluster) error {
	if r.compiled == nil {
		return nil
	}
	if err := r.compiled.Apply(o, c); err != nil {
		return fmt.Errorf("customize: %w", err)
	}
	return nil
}

// rulesCache compiles the Customizations of each namespace once for each version of them.
type rulesCache struct {
	byNamespace sync.Map // of *Rules
}

// read returns the Customizations of all namespaces and those of one namespace.
func (c *rulesCache) read(ctx context.Context, from client.Reader, namespace string) (*Rules, error) {
	list, err := customizations(ctx, from, namespace)
	if err != nil {
		return nil, err
	}
	var version strings.Builder
	for _, c := range list {
		fmt.Fprintf(&version, "%s:%d,", c.UID, c.Generation)
	}
	if value, ok := c.byNamespace.Load(namespace); ok {
		if known, ok := value.(*Rules); ok && known.version == version.String() {
			return known, nil
		}
	}
	r := &Rules{version: version.String()}
	if len(list) > 0 {
		// A Customization that does not compile stays among them, and fails for the objects that it matches.
		r.compiled, _ = render.Compile(list)
	}
	c.byNamespace.Store(namespace, r)
	return r, nil
}

func customizations(ctx context.Context, from client.Reader, namespace string) ([]v1alpha1.Customization, error) {
	var all []v1alpha1.Customization
	for _, ns := range []string{v1alpha1.SystemNamespace, namespace} {
		if ns == "" {
			continue
		}
		var list v1alpha1.CustomizationList
		if err := from.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return nil, fmt.Errorf("list Customizations in %s: %w", ns, err)
		}
		all = append(all, list.Items...)
	}
	return all, nil
}
