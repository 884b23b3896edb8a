// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"maps"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// queue is where objects wait for their pass.
type queue = workqueue.TypedRateLimitingInterface[Key]

// on calls do for each event of an object: old is nil when it is new, now when it is
// gone.
func on[T client.Object](do func(ctx context.Context, old, now T, q queue)) handler.TypedEventHandler[T, Key] {
	var none T
	return handler.TypedFuncs[T, Key]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q queue) { do(ctx, none, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q queue) { do(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q queue) { do(ctx, e.Object, none, q) },
	}
}

// watch queues objects when what their placement depends on changes.
func (h *hub) watch(ctl controller.TypedController[Key]) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind())
	sources := map[string]source.TypedSource[Key]{
		"Works":             source.TypedKind(h.cached, &v1alpha1.Work{}, on(onWork)),
		"Assignments":       source.TypedKind(h.cached, &v1alpha1.Assignment{}, on(onAssignment)),
		"Clusters":          source.TypedKind(h.cached, &v1alpha1.Cluster{}, on(h.onCluster)),
		"Customizations":    source.TypedKind(h.cached, &v1alpha1.Customization{}, on(h.onCustomization)),
		"Placements":        source.TypedKind(h.cached, &v1alpha1.Placement{}, on(h.onPlacement)),
		"ClusterPlacements": source.TypedKind(h.cached, &v1alpha1.ClusterPlacement{}, on(h.onClusterPlacement)),
		"Namespaces":        source.TypedKind(h.cached, namespace, on(h.onNamespace)),
	}
	for _, gvk := range render.Along() {
		sources[gvk.Kind] = source.TypedKind(h.cached, empty(gvk), on(h.onAlong))
	}
	for name, s := range sources {
		if err := ctl.Watch(s); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return nil
}

func onWork(_ context.Context, old, now *v1alpha1.Work, q queue) {
	if now == nil {
		now = old
	}
	q.Add(keyOf(now.Spec.Source))
}

// onAssignment queues the object, and what follows it when it goes elsewhere.
func onAssignment(_ context.Context, old, now *v1alpha1.Assignment, q queue) {
	follows := map[v1alpha1.FollowReference]int{}
	var where [2]string
	for i, a := range []*v1alpha1.Assignment{old, now} {
		if a == nil {
			continue
		}
		q.Add(keyOf(a.Spec.Object))
		for _, f := range a.Spec.Follows {
			follows[f] |= i + 1
		}
		for _, t := range a.Spec.Targets {
			where[i] += string(t.Cluster) + ","
		}
	}
	for f, in := range follows {
		if in != 3 || where[0] != where[1] {
			a := now
			if a == nil {
				a = old
			}
			q.Add(Key{GroupKind: schema.GroupKind{Group: f.Group, Kind: f.Kind}, Namespace: a.Namespace, Name: f.Name})
		}
	}
}

// onCluster queues all that is placed when what a decision depends on changes.
func (h *hub) onCluster(ctx context.Context, old, now *v1alpha1.Cluster, q queue) {
	if old != nil && now != nil && old.Generation == now.Generation && maps.Equal(old.Labels, now.Labels) &&
		maps.Equal(old.Annotations, now.Annotations) && reachable(old) == reachable(now) {
		return
	}
	h.queueAssigned(ctx, "", q)
}

func (h *hub) onCustomization(ctx context.Context, old, now *v1alpha1.Customization, q queue) {
	if old != nil && now != nil && old.Generation == now.Generation {
		return
	}
	if now == nil {
		now = old
	}
	namespace := now.Namespace
	if namespace == v1alpha1.SystemNamespace {
		namespace = ""
	}
	h.queueAssigned(ctx, namespace, q)
}

// onAlong queues the workloads that it may be for.
func (h *hub) onAlong(ctx context.Context, old, now *unstructured.Unstructured, q queue) {
	if old != nil && now != nil && same(old.Object["spec"], now.Object["spec"]) {
		return
	}
	if now == nil {
		now = old
	}
	h.queueAssigned(ctx, now.GetNamespace(), q)
}

// queueAssigned queues what has an Assignment, of one namespace or of all.
func (h *hub) queueAssigned(ctx context.Context, namespace string, q queue) {
	var list v1alpha1.AssignmentList
	if err := h.cached.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot list Assignments")
		return
	}
	for i := range list.Items {
		q.Add(keyOf(list.Items[i].Spec.Object))
	}
}
