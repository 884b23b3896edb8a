// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// How often the hub discovers kinds: soon after a definition has changed, since a busy API server
// serves new kinds somewhat later, then at growing intervals. The longest interval finds the kinds
// of extension API servers, which have no definition.
const (
	discoverySoon     = 200 * time.Millisecond
	discoveryInterval = 5 * time.Minute
	discoveryRetry    = time.Second
)

// kindWatcher watches the objects of all placeable kinds, as kinds come and go.
type kindWatcher struct {
	cached     cache.Cache
	kinds      *kinds.Registry
	controller controller.TypedController[kinds.Key]
	discovery  discovery.DiscoveryInterface
	changed    chan struct{}
}

func newKindWatcher(
	cached cache.Cache, registry *kinds.Registry, ctl controller.TypedController[kinds.Key], d discovery.DiscoveryInterface,
) *kindWatcher {
	return &kindWatcher{cached: cached, kinds: registry, controller: ctl, discovery: d, changed: make(chan struct{}, 1)}
}

// Start discovers kinds until ctx ends.
func (w *kindWatcher) Start(ctx context.Context) error {
	stop, err := w.watchDefinitions(ctx)
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	defer stop()
	timer, pause := time.NewTimer(0), discoverySoon
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			pause = discoverySoon
			timer.Reset(pause)
		case <-timer.C:
			if err := w.update(ctx); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Failed to watch all kinds")
				timer.Reset(discoveryRetry)
				continue
			}
			pause = min(2*pause, discoveryInterval)
			timer.Reset(pause)
		}
	}
}

// watchDefinitions signals each change of a CustomResourceDefinition, until stop is called.
func (w *kindWatcher) watchDefinitions(ctx context.Context) (stop func(), err error) {
	informer, err := w.cached.GetInformer(ctx, kinds.Metadata(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	}))
	if err != nil {
		return nil, err
	}
	signal := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(_, _ any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}

// update discovers kinds, watches the new ones, and stops watching those that are gone. A kind that
// cannot be watched does not keep it from the others.
func (w *kindWatcher) update(ctx context.Context) error {
	served, err := kinds.Discover(w.discovery, w.kinds.All())
	if err != nil {
		return err
	}
	added, removed := w.kinds.Replace(served)
	var failed []error
	for _, k := range removed {
		if err := w.cached.RemoveInformer(ctx, kinds.Metadata(k.GroupVersionKind)); err != nil {
			failed = append(failed, fmt.Errorf("stop watching %s: %w", k.GroupVersionKind, err))
		}
	}
	for _, k := range added {
		if err := w.controller.Watch(objectSource(w.cached, k)); err != nil {
			w.kinds.Forget(k.GroupKind())
			failed = append(failed, fmt.Errorf("watch %s: %w", k.GroupVersionKind, err))
		}
	}
	return errors.Join(failed...)
}

// objectSource queues the objects of a kind.
func objectSource(cached cache.Cache, k kinds.Kind) source.TypedSource[kinds.Key] {
	return source.TypedKind(cached, kinds.Metadata(k.GroupVersionKind),
		handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *metav1.PartialObjectMetadata) []kinds.Key {
			return []kinds.Key{{GroupKind: k.GroupKind(), Namespace: o.Namespace, Name: o.Name}}
		}),
		predicate.TypedFuncs[*metav1.PartialObjectMetadata]{UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return objectChanged(e.ObjectOld, e.ObjectNew)
		}})
}

// objectChanged reports whether more of an object has changed than its status, or whether another
// client has removed the hub's finalizer.
func objectChanged(old, now *metav1.PartialObjectMetadata) bool {
	hasFinalizer := func(o *metav1.PartialObjectMetadata) bool {
		return slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer)
	}
	return now.Generation == 0 || generationChanged(old, now) || old.UID != now.UID || labelsChanged(old, now) ||
		!maps.Equal(old.Annotations, now.Annotations) || hasFinalizer(old) && !hasFinalizer(now) ||
		(old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil)
}
