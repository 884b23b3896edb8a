// SPDX-License-Identifier: Apache-2.0

package agent

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
	// settleTime lets changes that come together be looked at together.
	settleTime = 20 * time.Millisecond
	// goneTimeout bounds the question whether a namespace exists.
	goneTimeout = 10 * time.Second
	// unseenEvery is how often the objects are looked at that no watch has seen yet.
	unseenEvery = 2 * time.Second
)

// watcher follows the objects that are ours, one watch per resource and namespace, as
// metadata: each change of an object, of its status too, changes its resourceVersion. The
// agent has no right to watch a resource in all namespaces.
type watcher struct {
	client  metadata.Interface
	changed func(key string, o metav1.Object)
	// gone tells whether a namespace does not exist.
	gone func(ctx context.Context, namespace string) bool

	mu      sync.Mutex
	started map[watched]*watching
	unseen  map[string]unseen // by objectKey
	ended   bool
	all     sync.WaitGroup
}

// watched is what one watch follows; without a namespace it is cluster-scoped.
type watched struct {
	schema.GroupVersionResource
	namespace string
}

// watching is a watch that runs.
type watching struct {
	end     context.CancelFunc
	objects toolscache.Store
}

// unseen is an object that its watch does not have.
type unseen struct {
	watched
	object *metav1.ObjectMeta
}

func newWatcher(client metadata.Interface, changed func(string, metav1.Object), gone func(context.Context, string) bool) *watcher {
	return &watcher{client: client, changed: changed, gone: gone, started: map[watched]*watching{}, unseen: map[string]unseen{}}
}

// watch begins to follow a resource in a namespace, once, until end: a watch outlives the pass
// that needs it first.
func (w *watcher) watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	this := watched{gvr, namespace}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.started[this]; ok || w.ended {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, gvr, namespace, 0, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=true" }).Informer()
	w.started[this] = &watching{cancel, informer.GetStore()}
	if observe(informer, slimMeta, func(o metav1.Object) {
		w.changed(objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName()), o)
	}) != nil || informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		w.failed(ctx, this, r, err)
	}) != nil {
		return // the informer is new: it can be observed
	}
	w.all.Go(func() { informer.RunWithContext(ctx) })
}

// expect has an object looked at again until its watch has it: nobody tells of one that is
// deleted before the watch begins, or while it is broken.
func (w *watcher) expect(gvr schema.GroupVersionResource, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := unseen{watched{gvr, o.GetNamespace()}, &metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}
	if !w.sees(u) {
		w.unseen[objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName())] = u
	}
}

// sees tells whether the watch of an object has it.
func (w *watcher) sees(u unseen) bool {
	one, ok := w.started[u.watched]
	if !ok {
		return true // it ended with its namespace
	}
	found, _, err := one.objects.GetByKey(toolscache.MetaObjectToName(u.object).String())
	o, ok := found.(metav1.Object)
	return err == nil && ok && o.GetUID() == u.object.GetUID()
}

// recheck tells of the objects that are still unseen. A look at them expects them again.
func (w *watcher) recheck(context.Context) {
	w.mu.Lock()
	missed := w.unseen
	w.unseen = map[string]unseen{}
	maps.DeleteFunc(missed, func(_ string, u unseen) bool { return w.sees(u) })
	w.mu.Unlock()
	for key, u := range missed {
		w.changed(key, u.object)
	}
}

// failed ends a watch whose namespace is gone, and with it the agent's rights there. The
// lock is held while the API server is asked: a namespace that comes back is watched again.
func (w *watcher) failed(ctx context.Context, this watched, r *toolscache.Reflector, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	if this.namespace == "" || !apierrors.IsForbidden(err) || !w.gone(bounded, this.namespace) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if one, ok := w.started[this]; ok {
		one.end()
		delete(w.started, this)
	}
}

// end ends all watches, and waits for them.
func (w *watcher) end() {
	w.mu.Lock()
	w.ended = true
	for _, one := range w.started {
		one.end()
	}
	w.mu.Unlock()
	w.all.Wait()
}
