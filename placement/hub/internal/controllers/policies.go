// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// policyValidator reports in the condition Valid of Placements, ClusterPlacements and Customizations
// whether they can be used.
type policyValidator struct {
	cached client.Reader
	direct client.Client
	events record.EventRecorder
	kinds  *kinds.Registry
}

// setup adds one controller for each kind to a manager.
func (v *policyValidator) setup(m manager.Manager) error {
	return errors.Join(
		addPolicyController(m, v, &v1alpha1.Placement{}, &v1alpha1.PlacementList{},
			func(ctx context.Context, p *v1alpha1.Placement) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := v.validatePlacement(ctx, &p.Spec)
				return &p.Status, mistake, err
			}),
		addPolicyController(m, v, &v1alpha1.ClusterPlacement{}, &v1alpha1.ClusterPlacementList{},
			func(ctx context.Context, p *v1alpha1.ClusterPlacement) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := v.validatePlacement(ctx, &p.Spec.PlacementSpec)
				return &p.Status, mistake, err
			}),
		addPolicyController(m, v, &v1alpha1.Customization{}, &v1alpha1.CustomizationList{},
			func(ctx context.Context, c *v1alpha1.Customization) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := v.validateCustomization(ctx, c)
				return &c.Status, mistake, err
			}))
}

// addPolicyController validates a policy of one kind when it changes. It validates all policies of
// a namespace when one of them is deleted, since that leaves more of the namespace's budget, and all
// policies when a Cluster is created, since they may name it.
func addPolicyController[T interface {
	client.Object
	comparable
}](
	m manager.Manager, v *policyValidator, kind T, list client.ObjectList,
	validate func(context.Context, T) (*v1alpha1.PolicyStatus, *policy.Error, error),
) error {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (found []reconcile.Request) {
		policies, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok || v.cached.List(ctx, policies, client.InNamespace(o.GetNamespace())) != nil {
			return nil // they are validated when they change
		}
		_ = meta.EachListItem(policies, func(o runtime.Object) error {
			if p, ok := o.(client.Object); ok {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
			}
			return nil
		})
		return found
	})
	never := func(event.UpdateEvent) bool { return false }
	return builder.ControllerManagedBy(m).For(kind).
		WithOptions(controllerOptions()).
		Watches(kind, all, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: never,
		})).
		Watches(&v1alpha1.Cluster{}, all, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
			UpdateFunc: never,
		})).
		Complete(reconcile.AsReconciler(v.direct, reconcile.TypedFunc[T](func(ctx context.Context, o T) (reconcile.Result, error) {
			status, mistake, err := validate(ctx, o)
			if err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, v.writeStatus(ctx, o, status, mistake)
		})))
}

// validatePlacement returns the mistake in a policy; nil: there is none.
func (v *policyValidator) validatePlacement(ctx context.Context, spec *v1alpha1.PlacementSpec) (*policy.Error, error) {
	for i, o := range spec.Objects {
		gk := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		if _, served := v.kinds.Get(gk); o.Kind != "" && !served && !policy.Placeable(gk, true) {
			return &policy.Error{
				Reason: v1alpha1.ReasonNotPlaceable, Field: fmt.Sprintf("spec.objects[%d].kind", i),
				Message: fmt.Sprintf("must be a kind that can be placed: objects of kind %s stay at the hub", gk),
			}, nil
		}
	}
	for i, name := range spec.Clusters.Names {
		err := v.cached.Get(ctx, client.ObjectKey{Name: string(name)}, &v1alpha1.Cluster{})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read Cluster %s: %w", name, err)
		}
		if err != nil {
			return &policy.Error{
				Reason: v1alpha1.ReasonUnknownCluster, Field: fmt.Sprintf("spec.clusters.names[%d]", i),
				Message: fmt.Sprintf("must be a Cluster of this hub: there is no Cluster %q", name),
			}, nil
		}
	}
	return nil, nil
}

// validateCustomization returns the mistake in a Customization; nil: there is none.
func (v *policyValidator) validateCustomization(ctx context.Context, c *v1alpha1.Customization) (*policy.Error, error) {
	var list v1alpha1.CustomizationList
	if err := v.cached.List(ctx, &list, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Customizations in %s: %w", c.Namespace, err)
	}
	if err := render.ValidateCustomization(c, list.Items); err != nil {
		return &policy.Error{Reason: v1alpha1.ReasonInvalidRule, Message: err.Error()}, nil
	}
	return nil, nil
}

// writeStatus writes the condition Valid of a policy if it has changed, and records an Event of a
// new mistake.
func (v *policyValidator) writeStatus(ctx context.Context, o client.Object, status *v1alpha1.PolicyStatus, mistake *policy.Error) error {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonValid, ObservedGeneration: o.GetGeneration(),
	}
	if mistake != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, mistake.Reason, mistake.Error()
	}
	if !meta.SetStatusCondition(&status.Conditions, condition) {
		return nil
	}
	status.ObservedGeneration = o.GetGeneration()
	if err := v.direct.Status().Update(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	if mistake != nil {
		v.events.Event(o, corev1.EventTypeWarning, mistake.Reason, mistake.Error())
	}
	return nil
}
