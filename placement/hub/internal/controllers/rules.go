// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// ruleSet are the compiled Customizations for one namespace.
type ruleSet struct {
	version  string
	compiled *render.Rules
}

func (r *ruleSet) apply(o *unstructured.Unstructured, c *v1alpha1.Cluster) error {
	if r.compiled == nil {
		return nil
	}
	if err := r.compiled.Apply(o, c); err != nil {
		return fmt.Errorf("customize: %w", err)
	}
	return nil
}

// rules returns the Customizations for the object, compiled once for each state of
// theirs.
func (p *pass) rules(ctx context.Context) (*ruleSet, error) {
	all, err := p.customizations(ctx)
	if err != nil {
		return nil, err
	}
	var version strings.Builder
	for _, c := range all {
		fmt.Fprintf(&version, "%s:%d,", c.UID, c.Generation)
	}
	if value, ok := p.compiled.Load(p.key.Namespace); ok {
		if known, ok := value.(*ruleSet); ok && known.version == version.String() {
			return known, nil
		}
	}
	r := &ruleSet{version: version.String()}
	if len(all) > 0 {
		// One that does not compile stays among them, and fails for what it matches.
		r.compiled, _ = render.Compile(all)
	}
	p.compiled.Store(p.key.Namespace, r)
	return r, nil
}

// customizations are those of all namespaces, and the object's namespace's.
func (p *pass) customizations(ctx context.Context) ([]v1alpha1.Customization, error) {
	var all []v1alpha1.Customization
	for _, namespace := range []string{v1alpha1.SystemNamespace, p.key.Namespace} {
		if namespace == "" {
			continue
		}
		var list v1alpha1.CustomizationList
		if err := p.cached.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list Customizations in %s: %w", namespace, err)
		}
		all = append(all, list.Items...)
	}
	return all, nil
}
