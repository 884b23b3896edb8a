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
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// addPolicies makes a manager say on each policy whether it can be used.
func (h *hub) addPolicies(m manager.Manager) error {
	return errors.Join(
		addChecker(m, h, &v1alpha1.Placement{}, func() client.ObjectList { return &v1alpha1.PlacementList{} },
			func(ctx context.Context, p *v1alpha1.Placement) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := h.checkSpec(ctx, &p.Spec)
				return &p.Status, mistake, err
			}),
		addChecker(m, h, &v1alpha1.ClusterPlacement{}, func() client.ObjectList { return &v1alpha1.ClusterPlacementList{} },
			func(ctx context.Context, p *v1alpha1.ClusterPlacement) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := h.checkSpec(ctx, &p.Spec.PlacementSpec)
				return &p.Status, mistake, err
			}),
		addChecker(m, h, &v1alpha1.Customization{}, func() client.ObjectList { return &v1alpha1.CustomizationList{} },
			func(ctx context.Context, c *v1alpha1.Customization) (*v1alpha1.PolicyStatus, *policy.Error, error) {
				mistake, err := h.checkRules(ctx, c)
				return &c.Status, mistake, err
			}))
}

// addChecker checks the policies of one kind: each when it changes, those of a namespace
// when one of them goes, which makes room in its budget, and all when a Cluster has come,
// which could mend them.
func addChecker[T interface {
	client.Object
	comparable
}](
	m manager.Manager, h *hub, empty T, list func() client.ObjectList,
	check func(context.Context, T) (*v1alpha1.PolicyStatus, *policy.Error, error),
) error {
	all := func(ctx context.Context, o client.Object) (found []reconcile.Request) {
		policies := list()
		if h.cached.List(ctx, policies, client.InNamespace(o.GetNamespace())) != nil {
			return nil // they are looked at when they are next seen
		}
		_ = meta.EachListItem(policies, func(o runtime.Object) error {
			if p, ok := o.(client.Object); ok {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
			}
			return nil
		})
		return found
	}
	never := func(event.UpdateEvent) bool { return false }
	return builder.ControllerManagedBy(m).For(empty).
		WithOptions(controller.Options{RateLimiter: retries[reconcile.Request]()}).
		Watches(empty, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: never,
		})).
		Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
			UpdateFunc: never,
		})).
		Complete(reconcile.AsReconciler(h.direct, reconcile.TypedFunc[T](func(ctx context.Context, o T) (reconcile.Result, error) {
			status, mistake, err := check(ctx, o)
			if err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, h.judge(ctx, o, status, mistake)
		})))
}

// judge writes the condition Valid of a policy if it is another, and an Event of a
// mistake that is new.
func (h *hub) judge(ctx context.Context, o client.Object, status *v1alpha1.PolicyStatus, mistake *policy.Error) error {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: o.GetGeneration(),
	}
	if mistake != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, mistake.Reason, mistake.Error()
	}
	if !meta.SetStatusCondition(&status.Conditions, condition) {
		return nil
	}
	status.ObservedGeneration = o.GetGeneration()
	if err := h.direct.Status().Update(ctx, o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	if mistake != nil {
		h.events.Event(o, corev1.EventTypeWarning, mistake.Reason, mistake.Error())
	}
	return nil
}
