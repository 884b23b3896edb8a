// SPDX-License-Identifier: Apache-2.0

package works

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
	// batchDelay lets one reconciliation handle changes that come together.
	batchDelay = 20 * time.Millisecond
	// namespaceCheckTimeout bounds the check whether a namespace exists.
	namespaceCheckTimeout = 10 * time.Second
	// unseenCheckInterval is how often the agent reconciles the objects that no watch has seen yet.
	unseenCheckInterval = 2 * time.Second
)

// objectWatcher watches the agent's objects, with one watch per resource and namespace, because the agent
// has no right to watch all namespaces. It watches metadata only: each change of an object, also of its
// status, changes the resourceVersion.
type objectWatcher struct {
	client   metadata.Interface
	onChange func(key string, o metav1.Object)
	// isNamespaceGone tells whether a namespace does not exist.
	isNamespaceGone func(ctx context.Context, namespace string) bool

	mu      sync.Mutex
	watches map[watchKey]*activeWatch
	unseen  map[string]unseenObject // by objectKey
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
	// uses counts the calls of ensureWatch for this watch.
	uses int
}

// unseenObject is an object that its watch has not seen yet.
type unseenObject struct {
	watchKey
	object *metav1.ObjectMeta
}

func newObjectWatcher(client metadata.Interface, changed func(string, metav1.Object), gone func(context.Context, string) bool) *objectWatcher {
	return &objectWatcher{client: client, onChange: changed, isNamespaceGone: gone, watches: map[watchKey]*activeWatch{}, unseen: map[string]unseenObject{}}
}

// ensureWatch starts the watch of a resource in a namespace, unless it runs. The watch runs until stop, also
// after the context of the reconciliation has ended.
func (w *objectWatcher) ensureWatch(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
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
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=true" }).Informer()
	w.watches[key] = &activeWatch{cancel: cancel, objects: informer.GetStore()}
	if informers.Observe(informer, informers.TrimMetadata, func(o metav1.Object) {
		w.onChange(objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName()), o)
	}) != nil || informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		w.handleWatchError(ctx, key, r, err)
	}) != nil {
		return // cannot be: the informer has not started
	}
	w.running.Go(func() { informer.RunWithContext(ctx) })
}

// expect makes requeueUnseen report an object until its watch has seen it: there is no event for an object
// that is deleted before its watch starts, or while the watch is interrupted.
func (w *objectWatcher) expect(gvr schema.GroupVersionResource, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := unseenObject{watchKey{gvr, o.GetNamespace()}, &metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}
	if !w.hasSeen(u) {
		w.unseen[objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName())] = u
	}
}

// hasSeen tells whether the watch of an object has seen it.
func (w *objectWatcher) hasSeen(u unseenObject) bool {
	watch, ok := w.watches[u.watchKey]
	if !ok {
		return true // the watch ended with its namespace
	}
	found, _, err := watch.objects.GetByKey(toolscache.MetaObjectToName(u.object).String())
	o, ok := found.(metav1.Object)
	return err == nil && ok && o.GetUID() == u.object.GetUID()
}

// requeueUnseen calls onChange for the objects that no watch has seen. Their reconciliation expects them
// again.
func (w *objectWatcher) requeueUnseen(context.Context) {
	w.mu.Lock()
	missed := w.unseen
	w.unseen = map[string]unseenObject{}
	maps.DeleteFunc(missed, func(_ string, u unseenObject) bool { return w.hasSeen(u) })
	w.mu.Unlock()
	for key, u := range missed {
		w.onChange(key, u.object)
	}
}

// handleWatchError stops a watch whose namespace is gone, and with it the agent's rights there. It checks
// the namespace without the lock: when a reconciliation uses the watch meanwhile, because the namespace
// exists again, the watch goes on.
func (w *objectWatcher) handleWatchError(ctx context.Context, key watchKey, r *toolscache.Reflector, err error) {
	uses, forbidden := w.useCount(key), apierrors.IsForbidden(err)
	bounded, cancel := context.WithTimeout(ctx, namespaceCheckTimeout)
	defer cancel()
	if key.namespace == "" || !forbidden || !w.isNamespaceGone(bounded, key.namespace) || !w.stopUnused(key, uses) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// useCount returns how often ensureWatch was called for a running watch.
func (w *objectWatcher) useCount(key watchKey) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watch, ok := w.watches[key]; ok {
		return watch.uses
	}
	return 0
}

// stopUnused stops a watch, unless ensureWatch was called for it since its useCount was uses.
func (w *objectWatcher) stopUnused(key watchKey, uses int) (stopped bool) {
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

// stop stops all watches, and waits for their end.
func (w *objectWatcher) stop() {
	w.mu.Lock()
	w.stopped = true
	for _, watch := range w.watches {
		watch.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
}
