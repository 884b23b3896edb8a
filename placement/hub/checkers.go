// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
)

// checkerOf makes a checker of one kind.
func checkerOf[T client.Object](
	h *hub, list client.ObjectList, empty func() T, status func(T) *v1alpha1.PolicyStatus,
	check func(context.Context, T) (*policy.Error, error),
) *checker {
	return &checker{
		hub: h, list: list,
		empty: func() client.Object { return empty() },
		status: func(o client.Object) *v1alpha1.PolicyStatus {
			if t, ok := o.(T); ok {
				return status(t)
			}
			return &v1alpha1.PolicyStatus{}
		},
		check: func(ctx context.Context, o client.Object) (*policy.Error, error) {
			if t, ok := o.(T); ok {
				return check(ctx, t)
			}
			return nil, nil
		},
	}
}

func (h *hub) placementChecker() *checker {
	return checkerOf(h, &v1alpha1.PlacementList{},
		func() *v1alpha1.Placement { return &v1alpha1.Placement{} },
		func(p *v1alpha1.Placement) *v1alpha1.PolicyStatus { return &p.Status },
		func(ctx context.Context, p *v1alpha1.Placement) (*policy.Error, error) {
			return h.checkSpec(ctx, &p.Spec)
		})
}

func (h *hub) clusterPlacementChecker() *checker {
	return checkerOf(h, &v1alpha1.ClusterPlacementList{},
		func() *v1alpha1.ClusterPlacement { return &v1alpha1.ClusterPlacement{} },
		func(p *v1alpha1.ClusterPlacement) *v1alpha1.PolicyStatus { return &p.Status },
		func(ctx context.Context, p *v1alpha1.ClusterPlacement) (*policy.Error, error) {
			return h.checkSpec(ctx, &p.Spec.PlacementSpec)
		})
}

func (h *hub) customizationChecker() *checker {
	return checkerOf(h, &v1alpha1.CustomizationList{},
		func() *v1alpha1.Customization { return &v1alpha1.Customization{} },
		func(c *v1alpha1.Customization) *v1alpha1.PolicyStatus { return &c.Status },
		func(_ context.Context, c *v1alpha1.Customization) (*policy.Error, error) { return checkRules(c), nil })
}

// requestsTo collects what to look at.
func requestsTo(found *[]reconcile.Request) func(runtime.Object) error {
	return func(o runtime.Object) error {
		if c, ok := o.(client.Object); ok {
			*found = append(*found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
		return nil
	}
}
