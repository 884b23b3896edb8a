// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// gather is how long changes of an object's Works are gathered: after a change at the
// hub all clusters report at about the same time, and one pass takes what they say.
const gather = 100 * time.Millisecond

// queue is where objects wait for their pass.
type queue = workqueue.TypedRateLimitingInterface[Key]

// watch queues objects when what their placement depends on changes.
func (h *hub) watch(ctl controller.TypedController[Key]) error {
	sources := map[string]source.TypedSource[Key]{
		"Works": source.TypedKind(h.cached, &v1alpha1.Work{}, handler.TypedFuncs[*v1alpha1.Work, Key]{
			CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.Work], q queue) { onWork(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.Work], q queue) { onWork(e.ObjectNew, q) },
			DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.Work], q queue) { onWork(e.Object, q) },
		}),
		"Assignments": source.TypedKind(h.cached, &v1alpha1.Assignment{}, handler.TypedEnqueueRequestsFromMapFunc(concerned),
			predicate.TypedGenerationChangedPredicate[*v1alpha1.Assignment]{}),
		"Clusters": queues(h, &v1alpha1.Cluster{}, differs, func(ctx context.Context, _ *v1alpha1.Cluster) []Key {
			return h.assigned(ctx, "")
		}),
		"Customizations": queues(h, &v1alpha1.Customization{}, newer, func(ctx context.Context, c *v1alpha1.Customization) []Key {
			return h.assigned(ctx, customized(c))
		}),
		"Placements": queues(h, &v1alpha1.Placement{}, newer, func(ctx context.Context, p *v1alpha1.Placement) []Key {
			return h.all(ctx, p.Namespace)
		}),
		"ClusterPlacements": queues(h, &v1alpha1.ClusterPlacement{}, newer, func(ctx context.Context, _ *v1alpha1.ClusterPlacement) []Key {
			return h.all(ctx, "")
		}),
		"Namespaces": queues(h, metadata(namespaceKind()), relabelled, func(ctx context.Context, n *metav1.PartialObjectMetadata) []Key {
			return h.all(ctx, n.Name)
		}),
	}
	for _, gvk := range render.CompanionKinds() { // the workloads that it may be for
		sources[gvk.Kind] = queues(h, empty(gvk), respecified, func(ctx context.Context, o *unstructured.Unstructured) []Key {
			return h.assigned(ctx, o.GetNamespace())
		})
	}
	sources["drains"] = source.TypedFunc[Key](func(_ context.Context, q queue) error {
		h.drains.wake(q)
		return nil
	})
	for name, s := range sources {
		if err := ctl.Watch(s); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return nil
}

// queues is a watch of what many objects depend on. Those that are there at the start
// queue nothing: each object comes by itself then.
func queues[T client.Object](h *hub, o T, changed func(old, now T) bool, keys handler.TypedMapFunc[T, Key]) source.TypedSource[Key] {
	return source.TypedKind(h.cached, o, handler.TypedEnqueueRequestsFromMapFunc(keys), predicate.TypedFuncs[T]{
		CreateFunc: func(e event.TypedCreateEvent[T]) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.TypedUpdateEvent[T]) bool { return changed(e.ObjectOld, e.ObjectNew) },
	})
}

func onWork(w *v1alpha1.Work, q queue) { q.AddAfter(keyOf(w.Spec.Source), gather) }

// concerned are the object, and what follows it and may have to go elsewhere.
func concerned(_ context.Context, a *v1alpha1.Assignment) []Key {
	keys := []Key{keyOf(a.Spec.Object)}
	for _, f := range a.Spec.Dependencies {
		keys = append(keys, Key{GroupKind: schema.GroupKind{Group: f.Group, Kind: f.Kind}, Namespace: a.Namespace, Name: f.Name})
	}
	return keys
}

// customized is the namespace that a Customization is for; empty: all.
func customized(c *v1alpha1.Customization) string {
	if c.Namespace == v1alpha1.SystemNamespace {
		return ""
	}
	return c.Namespace
}
