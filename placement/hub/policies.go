// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// checker says on a policy whether it can be used.
type checker struct {
	*hub
	list   client.ObjectList // an empty one
	empty  func() client.Object
	status func(client.Object) *v1alpha1.PolicyStatus
	check  func(context.Context, client.Object) (*policy.Error, error)
}

// addPolicies makes a manager check policies.
func (h *hub) addPolicies(m manager.Manager) error {
	for name, c := range map[string]*checker{
		"placements":        h.placementChecker(),
		"clusterplacements": h.clusterPlacementChecker(),
		"customizations":    h.customizationChecker(),
	} {
		b := builder.ControllerManagedBy(m).Named(name).For(c.empty())
		if name != "customizations" {
			b = b.Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(c.all))
		}
		if err := b.Complete(c); err != nil {
			return fmt.Errorf("check %s: %w", name, err)
		}
	}
	return nil
}

// Reconcile checks one policy.
func (c *checker) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := c.empty()
	if err := c.cached.Get(ctx, req.NamespacedName, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	mistake, err := c.check(ctx, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: o.GetGeneration(),
	}
	if mistake != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, mistake.Reason, mistake.Error()
	}
	status := c.status(o)
	changed := meta.SetStatusCondition(&status.Conditions, condition)
	if !changed && status.ObservedGeneration == o.GetGeneration() {
		return reconcile.Result{}, nil
	}
	status.ObservedGeneration = o.GetGeneration()
	if err := c.direct.Status().Update(ctx, o); err != nil {
		return reconcile.Result{}, fmt.Errorf("write status of %T %s: %w", o, req, client.IgnoreNotFound(err))
	}
	if changed && mistake != nil {
		c.events.Event(o, corev1.EventTypeWarning, mistake.Reason, mistake.Error())
	}
	return reconcile.Result{}, nil
}

// all are the policies that a Cluster's coming or going could mend or break.
func (c *checker) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list, ok := c.list.DeepCopyObject().(client.ObjectList)
	if !ok || c.cached.List(ctx, list) != nil {
		return nil // they are looked at when they are next seen
	}
	var found []reconcile.Request
	_ = meta.EachListItem(list, requestsTo(&found))
	return found
}

// checkSpec says what is wrong with a policy.
func (h *hub) checkSpec(ctx context.Context, spec *v1alpha1.PlacementSpec) (*policy.Error, error) {
	for i, o := range spec.Objects {
		gk := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		if o.Kind == "" {
			continue
		}
		if _, served := h.kinds.get(gk); !served && !policy.Placeable(gk, true) {
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
func checkRules(c *v1alpha1.Customization) *policy.Error {
	if _, errs := render.Compile([]v1alpha1.Customization{*c}); len(errs) > 0 {
		return &policy.Error{Reason: v1alpha1.ReasonInvalidRule, Message: errs[0].Error()}
	}
	return nil
}
