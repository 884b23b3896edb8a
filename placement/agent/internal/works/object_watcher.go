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
)

const (
	// batchDelay lets changes that come together be looked at together.
	batchDelay = 20 * time.Millisecond
	// namespaceCheckTimeout bounds the question whether a namespace exists.
	namespaceCheckTimeout = 10 * time.Second
	// unseenCheckInterval is how often the objects are looked at that no watch has seen yet.
	unseenCheckInterval = 2 * time.Second
)

// objectWatcher follows the objects that are ours, one watch per resource and namespace, as
// metadata: each change of an object, of its status too, changes its resourceVersion. The
// agent has no right to watch a resource in all namespaces.
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

// watchKey is what one watch follows; without a namespace it is cluster-scoped.
type watchKey struct {
	schema.GroupVersionResource
	namespace string
}

// activeWatch is a watch that runs.
type activeWatch struct {
	cancel  context.CancelFunc
	objects toolscache.Store
}

// unseenObject is an object that its watch does not have.
type unseenObject struct {
	watchKey
	object *metav1.ObjectMeta
}

func newObjectWatcher(client metadata.Interface, changed func(string, metav1.Object), gone func(context.Context, string) bool) *objectWatcher {
	return &objectWatcher{client: client, onChange: changed, isNamespaceGone: gone, watches: map[watchKey]*activeWatch{}, unseen: map[string]unseenObject{}}
}

// ensureWatch begins to follow a resource in a namespace, once, until end: a watch outlives the pass
// that needs it first.
func (w *objectWatcher) ensureWatch(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	this := watchKey{gvr, namespace}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.watches[this]; ok || w.stopped {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, gvr, namespace, 0, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=true" }).Informer()
	w.watches[this] = &activeWatch{cancel, informer.GetStore()}
	if observeInformer(informer, trimMetadata, func(o metav1.Object) {
		w.onChange(objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName()), o)
	}) != nil || informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		w.handleWatchError(ctx, this, r, err)
	}) != nil {
		return // the informer is new: it can be observed
	}
	w.running.Go(func() { informer.RunWithContext(ctx) })
}

// expect has an object looked at again until its watch has it: nobody tells of one that is
// deleted before the watch begins, or while it is broken.
func (w *objectWatcher) expect(gvr schema.GroupVersionResource, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := unseenObject{watchKey{gvr, o.GetNamespace()}, &metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}
	if !w.hasSeen(u) {
		w.unseen[objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName())] = u
	}
}

// hasSeen tells whether the watch of an object has it.
func (w *objectWatcher) hasSeen(u unseenObject) bool {
	one, ok := w.watches[u.watchKey]
	if !ok {
		return true // it ended with its namespace
	}
	found, _, err := one.objects.GetByKey(toolscache.MetaObjectToName(u.object).String())
	o, ok := found.(metav1.Object)
	return err == nil && ok && o.GetUID() == u.object.GetUID()
}

// requeueUnseen tells of the objects that are still unseen. A look at them expects them again.
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

// handleWatchError ends a watch whose namespace is gone, and with it the agent's rights there. The
// lock is held while the API server is asked: a namespace that comes back is watched again.
func (w *objectWatcher) handleWatchError(ctx context.Context, this watchKey, r *toolscache.Reflector, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, namespaceCheckTimeout)
	defer cancel()
	if this.namespace == "" || !apierrors.IsForbidden(err) || !w.isNamespaceGone(bounded, this.namespace) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if one, ok := w.watches[this]; ok {
		one.cancel()
		delete(w.watches, this)
	}
}

// stop ends all watches, and waits for them.
func (w *objectWatcher) stop() {
	w.mu.Lock()
	w.stopped = true
	for _, one := range w.watches {
		one.cancel()
	}
	w.mu.Unlock()
	w.running.Wait()
}
