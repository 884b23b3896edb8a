// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// checkSpec says what is wrong with a policy.
func (h *hub) checkSpec(ctx context.Context, spec *v1alpha1.PlacementSpec) (*policy.Error, error) {
	for i, o := range spec.Objects {
		gk := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		if _, served := h.kinds.get(gk); o.Kind != "" && !served && !policy.Placeable(gk, true) {
			return &policy.Error{
				Reason: v1alpha1.ReasonNotPlaceable, Field: fmt.Sprintf("spec.objects[%d].kind", i),
				Message: fmt.Sprintf("objects of the kind %s stay at the hub", gk),
			}, nil
		}
	}
	for i, name := range spec.Clusters.Names {
		err := h.cached.Get(ctx, client.ObjectKey{Name: string(name)}, &v1alpha1.Cluster{})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look for Cluster %s: %w", name, err)
		}
		if err != nil {
			return &policy.Error{
				Reason: v1alpha1.ReasonUnknownCluster, Field: fmt.Sprintf("spec.clusters.names[%d]", i),
				Message: fmt.Sprintf("there is no Cluster %q", name),
			}, nil
		}
	}
	return nil, nil
}

// checkRules says what is wrong with a Customization.
func (h *hub) checkRules(ctx context.Context, c *v1alpha1.Customization) (*policy.Error, error) {
	var list v1alpha1.CustomizationList
	if err := h.cached.List(ctx, &list, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Customizations in %s: %w", c.Namespace, err)
	}
	if err := render.ValidateCustomization(c, list.Items); err != nil {
		return &policy.Error{Reason: v1alpha1.ReasonInvalidRule, Message: err.Error()}, nil
	}
	return nil, nil
}
