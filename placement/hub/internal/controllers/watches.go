// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// workDelay gathers changes of one object's Works: after a change at the hub all clusters report at
// about the same time, and one reconciliation reads all reports.
const workDelay = 100 * time.Millisecond

// queue is the work queue of the controller of objects.
type queue = workqueue.TypedRateLimitingInterface[kinds.Key]

// watchDependencies queues objects when something changes that their placement depends on. The
// kindWatcher queues them when they change themselves.
func watchDependencies(
	ctl controller.TypedController[kinds.Key], cached cache.Cache, registry *kinds.Registry, drains *limits.Drains, tracker *reports.Tracker, rooms *limits.Rooms,
) error {
	l := &objectLister{cached: cached, kinds: registry}
	sources := map[string]source.TypedSource[kinds.Key]{
		"Works": source.TypedKind(cached, &v1alpha1.Work{}, handler.TypedFuncs[*v1alpha1.Work, kinds.Key]{
			CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.Work], q queue) { queueWork(e.Object, q) },
			UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*v1alpha1.Work], q queue) {
				queueWork(e.ObjectNew, q)
				for _, key := range l.concernedByTraffic(ctx, e.ObjectOld, e.ObjectNew) {
					q.AddAfter(key, workDelay)
				}
			},
			DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*v1alpha1.Work], q queue) {
				queueWork(e.Object, q)
				for _, key := range l.concernedByTraffic(ctx, e.Object, &v1alpha1.Work{}) {
					q.AddAfter(key, workDelay)
				}
			},
		}),
		"Assignments": source.TypedKind(cached, &v1alpha1.Assignment{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, a *v1alpha1.Assignment) []kinds.Key {
				return append(withDependencies(a), l.servicesOf(ctx, a.Name)...)
			}),
			predicate.TypedGenerationChangedPredicate[*v1alpha1.Assignment]{}),
		"Clusters": clusterSource(cached, l),
		"Customizations": sourceOf(cached, &v1alpha1.Customization{}, generationChanged, func(ctx context.Context, c *v1alpha1.Customization) []kinds.Key {
			if c.Namespace == v1alpha1.SystemNamespace {
				return l.assigned(ctx, "")
			}
			return l.assigned(ctx, c.Namespace)
		}),
		"Placements": sourceOf(cached, &v1alpha1.Placement{}, generationChanged, func(ctx context.Context, p *v1alpha1.Placement) []kinds.Key {
			return l.all(ctx, p.Namespace)
		}),
		"ClusterPlacements": sourceOf(cached, &v1alpha1.ClusterPlacement{}, generationChanged, func(ctx context.Context, _ *v1alpha1.ClusterPlacement) []kinds.Key {
			return l.all(ctx, "")
		}),
		"Namespaces": sourceOf(cached, kinds.NamespaceMetadata(), labelsChanged, func(ctx context.Context, n *metav1.PartialObjectMetadata) []kinds.Key {
			return l.all(ctx, n.Name)
		}),
	}
	for _, gvk := range render.CompanionKinds() { // the workloads of the namespace may be theirs
		sources[gvk.Kind] = sourceOf(cached, kinds.Unstructured(gvk), specChanged, func(ctx context.Context, o *unstructured.Unstructured) []kinds.Key {
			return l.assigned(ctx, o.GetNamespace())
		})
	}
	sources["drains"] = source.TypedFunc[kinds.Key](func(_ context.Context, q queue) error {
		drains.SetQueue(q)
		return nil
	})
	sources["reports"] = source.TypedFunc[kinds.Key](func(_ context.Context, q queue) error {
		tracker.SetQueue(q)
		return nil
	})
	sources["rooms"] = source.TypedFunc[kinds.Key](func(_ context.Context, q queue) error {
		rooms.SetQueue(q)
		return nil
	})
	for name, s := range sources {
		if err := ctl.Watch(s); err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
	}
	return nil
}

// clusterSource queues the objects that a change of a Cluster concerns. What exists at the start queues none.
func clusterSource(cached cache.Cache, l *objectLister) source.TypedSource[kinds.Key] {
	add := func(q queue, keys []kinds.Key) {
		for _, key := range keys {
			q.Add(key)
		}
	}
	return source.TypedKind(cached, &v1alpha1.Cluster{}, handler.TypedFuncs[*v1alpha1.Cluster, kinds.Key]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*v1alpha1.Cluster], q queue) {
			if !e.IsInInitialList {
				add(q, l.assigned(ctx, ""))
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*v1alpha1.Cluster], q queue) {
			add(q, l.concernedByCluster(ctx, e.ObjectOld, e.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, _ event.TypedDeleteEvent[*v1alpha1.Cluster], q queue) {
			add(q, l.assigned(ctx, ""))
		},
	})
}

func queueWork(w *v1alpha1.Work, q queue) { q.AddAfter(kinds.KeyOf(w.Spec.Source), workDelay) }

// withDependencies returns the object of an Assignment, and its dependencies, which may have to go to
// other clusters.
func withDependencies(a *v1alpha1.Assignment) []kinds.Key {
	keys := []kinds.Key{kinds.KeyOf(a.Spec.Object)}
	for _, d := range a.Spec.Dependencies {
		keys = append(keys, kinds.Key{GroupKind: schema.GroupKind{Group: d.Group, Kind: d.Kind}, Namespace: a.Namespace, Name: d.Name})
	}
	return keys
}

// sourceOf watches a kind that many objects depend on. What exists at the start queues no objects:
// each object is queued by its own watch then.
func sourceOf[T client.Object](cached cache.Cache, o T, changed func(old, now T) bool, keys handler.TypedMapFunc[T, kinds.Key]) source.TypedSource[kinds.Key] {
	return source.TypedKind(cached, o, handler.TypedEnqueueRequestsFromMapFunc(keys), predicate.TypedFuncs[T]{
		CreateFunc: func(e event.TypedCreateEvent[T]) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.TypedUpdateEvent[T]) bool { return changed(e.ObjectOld, e.ObjectNew) },
	})
}

func generationChanged[T client.Object](old, now T) bool {
	return old.GetGeneration() != now.GetGeneration()
}

// labelsChanged reports whether other policies may select the object, or the objects of a namespace.
func labelsChanged(old, now *metav1.PartialObjectMetadata) bool {
	return !maps.Equal(old.Labels, now.Labels)
}

// specChanged is for kinds whose generation the API server does not maintain.
func specChanged(old, now *unstructured.Unstructured) bool {
	x, errX := json.Marshal(old.Object["spec"])
	y, errY := json.Marshal(now.Object["spec"])
	return errX != nil || errY != nil || string(x) != string(y)
}

// objectLister lists the keys of objects. After an error it returns those that it has found: the
// others are queued when they change.
type objectLister struct {
	cached cache.Cache
	kinds  *kinds.Registry
}

// assigned returns the objects that have an Assignment, of one namespace or, for "", of all.
func (l *objectLister) assigned(ctx context.Context, namespace string) (keys []kinds.Key) {
	var list v1alpha1.AssignmentList
	if err := l.cached.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list Assignments")
	}
	for i := range list.Items {
		keys = append(keys, kinds.KeyOf(list.Items[i].Spec.Object))
	}
	return keys
}

// all returns the objects of all placeable kinds, of one namespace or, for "", of all.
func (l *objectLister) all(ctx context.Context, namespace string) (keys []kinds.Key) {
	for _, k := range l.kinds.All() {
		if namespace != "" && !k.Namespaced {
			continue
		}
		if !kinds.IsListed(ctx, l.cached, k) { // the kind's own watch queues its objects later
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersionKind)
		list.Kind += "List"
		if err := l.cached.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list objects", "kind", k.GroupVersionKind)
		}
		for i := range list.Items {
			keys = append(keys, kinds.Key{GroupKind: k.GroupKind(), Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
	}
	return keys
}
