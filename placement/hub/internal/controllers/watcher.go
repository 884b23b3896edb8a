// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// How often kinds are looked for: soon after a definition changed, then less and less often
// (a busy API server says somewhat later which kinds it serves), and now and then, for
// kinds that have no definition (those of aggregated API servers).
const (
	lookSoon  = 200 * time.Millisecond
	lookAgain = 5 * time.Minute
)

// watcher watches the objects of all placeable kinds as they come and go.
type watcher struct {
	*hub
	ctl     controller.TypedController[Key]
	client  discovery.DiscoveryInterface
	changed chan struct{}
}

func newWatcher(h *hub, ctl controller.TypedController[Key], d discovery.DiscoveryInterface) *watcher {
	return &watcher{hub: h, ctl: ctl, client: d, changed: make(chan struct{}, 1)}
}

// Start looks for kinds until ctx ends.
func (w *watcher) Start(ctx context.Context) error {
	informer, err := w.cached.GetInformer(ctx, metadata(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	}))
	if err != nil {
		return fmt.Errorf("watch definitions: %w", err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.wake() },
		UpdateFunc: func(_, _ any) { w.wake() },
		DeleteFunc: func(any) { w.wake() },
	})
	if err != nil {
		return fmt.Errorf("watch definitions: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	timer, pause := time.NewTimer(0), lookSoon
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			pause = lookSoon
			timer.Reset(pause)
		case <-timer.C:
			if err := w.look(ctx); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Cannot watch all kinds; trying again")
				timer.Reset(time.Second)
				continue
			}
			pause = min(2*pause, lookAgain)
			timer.Reset(pause)
		}
	}
}

// wake asks for a look, soon.
func (w *watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// look begins to watch what is new, and ends what is gone.
func (w *watcher) look(ctx context.Context) error {
	served, err := discover(w.client, w.kinds.all())
	if err != nil {
		return err
	}
	added, gone := w.kinds.set(served)
	var failed []error // the others go on all the same
	for _, k := range gone {
		if err := w.cached.RemoveInformer(ctx, metadata(k.GroupVersionKind)); err != nil {
			failed = append(failed, fmt.Errorf("end watch of %s: %w", k.GroupVersionKind, err))
		}
	}
	for _, k := range added {
		if err := w.ctl.Watch(w.objects(k)); err != nil {
			w.kinds.forget(k.GroupKind())
			failed = append(failed, fmt.Errorf("watch %s: %w", k.GroupVersionKind, err))
		}
	}
	return errors.Join(failed...)
}

// objects queues the objects of a kind.
func (w *watcher) objects(k kind) source.TypedSource[Key] {
	return source.TypedKind(w.cached, metadata(k.GroupVersionKind),
		handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *metav1.PartialObjectMetadata) []Key {
			return []Key{{GroupKind: k.GroupKind(), Namespace: o.Namespace, Name: o.Name}}
		}),
		predicate.TypedFuncs[*metav1.PartialObjectMetadata]{UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return edited(e.ObjectOld, e.ObjectNew)
		}})
}
