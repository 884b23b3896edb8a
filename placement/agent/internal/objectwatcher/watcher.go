// SPDX-License-Identifier: Apache-2.0

// Package objectwatcher watches the objects that the agent has applied in its cluster.
package objectwatcher

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/informers"
)

const (
	// namespaceCheckTimeout bounds the check whether a namespace exists.
	namespaceCheckTimeout = 10 * time.Second
	// UnseenCheckInterval is how often the agent calls RequeueUnseen.
	UnseenCheckInterval = 2 * time.Second
)

// Watcher watches the agent's objects, with one watch per resource and namespace, because the agent
// has no right to watch all namespaces. It watches metadata only: each change of an object, also of its
// status, changes the resourceVersion.
type Watcher struct {
	client   metadata.Interface
	selector string // by labels
	onChange func(resource schema.GroupResource, o metav1.Object)
	// isNamespaceGone tells whether a namespace does not exist.
	isNamespaceGone func(ctx context.Context, namespace string) bool

	mu      sync.Mutex
	watches map[watchKey]*activeWatch
	unseen  map[unseenKey]unseenObject
	stopped bool
	running sync.WaitGroup
}

// watchKey identifies a watch; namespace is empty for cluster-scoped resources.
type watchKey struct {
	schema.GroupVersionResource
	namespace string
}

// activeWatch is a watch that runs.
type activeWatch struct {
	cancel  context.CancelFunc
	objects toolscache.Store
	// uses counts the calls of EnsureWatch for this watch.
	uses int
}

// unseenKey identifies an unseenObject.
type unseenKey struct {
	watchKey
	name string
}

// unseenObject is an object that its watch has not seen yet.
type unseenObject struct {
	watchKey
	object *metav1.ObjectMeta
}

// New makes a Watcher of the agent's objects, without any watch. It calls changed for each change of an object, and
// gone to find out whether a namespace does not exist.
func New(client metadata.Interface, changed func(schema.GroupResource, metav1.Object), gone func(context.Context, string) bool) *Watcher {
	return NewSelecting(client, v1alpha1.ManagedLabel+"=true", changed, gone)
}

// NewSelecting makes a Watcher like New, of the objects that a label selector selects.
func NewSelecting(
	client metadata.Interface, selector string, changed func(schema.GroupResource, metav1.Object), gone func(context.Context, string) bool,
) *Watcher {
	return &Watcher{
		client: client, selector: selector, onChange: changed, isNamespaceGone: gone, watches: map[watchKey]*activeWatch{}, unseen: map[unseenKey]unseenObject{},
	}
}

// EnsureWatch starts the watch of a resource in a namespace, unless it runs. The watch runs until Stop, also
// after the context of the reconciliation has ended.
func (w *Watcher) EnsureWatch(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	key := watchKey{gvr, namespace}
	w.mu.Lock()
	defer w.mu.Unlock()
	if running, ok := w.watches[key]; ok || w.stopped {
		if ok {
			running.uses++
		}
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, gvr, namespace, 0, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = w.selector }).Informer()
	w.watches[key] = &activeWatch{cancel: cancel, objects: informer.GetStore()}
	if informers.Observe(informer, informers.TrimMetadata, func(o metav1.Object) {
		w.onChange(gvr.GroupResource(), o)
	}) != nil || informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		w.handleWatchError(ctx, key, r, err)
	}) != nil {
		return // cannot be: the informer has not started
	}
	w.running.Go(func() { informer.RunWithContext(ctx) })
}

// Expect makes RequeueUnseen report an object until its watch has seen it: there is no event for an object
// that is deleted before its watch starts, or while the watch is interrupted.
func (w *Watcher) Expect(gvr schema.GroupVersionResource, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := unseenObject{watchKey{gvr, o.GetNamespace()}, &metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}
	if !w.hasSeen(u) {
		w.unseen[unseenKey{u.watchKey, o.GetName()}] = u
	}
}

// hasSeen tells whether the watch of an object has seen it.
func (w *Watcher) hasSeen(u unseenObject) bool {
	watch, ok := w.watches[u.watchKey]
	if !ok {
		return true // the watch ended with its namespace
	}
	found, _, err := watch.objects.GetByKey(toolscache.MetaObjectToName(u.object).String())
	o, ok := found.(metav1.Object)
	return err == nil && ok && o.GetUID() == u.object.GetUID()
}

// RequeueUnseen calls onChange for the objects that no watch has seen. Their reconciliation expects them
// again.
func (w *Watcher) RequeueUnseen(context.Context) {
	w.mu.Lock()
	missed := w.unseen
	w.unseen = map[unseenKey]unseenObject{}
	maps.DeleteFunc(missed, func(_ unseenKey, u unseenObject) bool { return w.hasSeen(u) })
	w.mu.Unlock()
	for _, u := range missed {
		w.onChange(u.GroupResource(), u.object)
	}
}

// handleWatchError stops a watch whose namespace is gone, and with it the agent's rights there. It checks
// the namespace without the lock: when a reconciliation uses the watch meanwhile, because the namespace
// exists again, the watch goes on. While the watch fails it calls onChange for its objects at each attempt, because
// they may have changed.
func (w *Watcher) handleWatchError(ctx context.Context, key watchKey, r *toolscache.Reflector, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // else it lists them again
		w.requeueObjects(key)
	}
	uses, forbidden := w.useCount(key), apierrors.IsForbidden(err)
	bounded, cancel := context.WithTimeout(ctx, namespaceCheckTimeout)
	defer cancel()
	if key.namespace == "" || !forbidden || !w.isNamespaceGone(bounded, key.namespace) || !w.stopUnused(key, uses) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// requeueObjects calls onChange for all objects of a watch.
func (w *Watcher) requeueObjects(key watchKey) {
	w.mu.Lock()
	watch, ok := w.watches[key]
	w.mu.Unlock()
	if !ok {
		return
	}
	for _, found := range watch.objects.List() {
		if o, ok := found.(metav1.Object); ok {
			w.onChange(key.GroupResource(), o)
		}
	}
}

// useCount returns how often EnsureWatch was called for a running watch.
func (w *Watcher) useCount(key watchKey) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watch, ok := w.watches[key]; ok {
		return watch.uses
	}
	return 0
}

// stopUnused stops a watch, unless EnsureWatch was called for it since its useCount was uses.
func (w *Watcher) stopUnused(key watchKey, uses int) (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch, ok := w.watches[key]
	if !ok || watch.uses != uses {
		return !ok
	}
	watch.cancel()
	delete(w.watches, key)
	return true
}

// Stop stops all watches, and waits for their end.
func (w *Watcher) Stop() {
	w.mu.Lock()
	w.stopped = true
	for _, watch := range w.watches {
		watch.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
}
