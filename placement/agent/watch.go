// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// settleTime lets changes that come together be looked at together.
const settleTime = 20 * time.Millisecond

// watcher follows the objects that are ours, one watch per resource and namespace, as
// metadata: each change of an object, of its status too, changes its resourceVersion. The
// agent has no right to watch a resource in all namespaces.
type watcher struct {
	client  metadata.Interface
	changed func(key string, o metav1.Object)
	// gone tells whether a namespace does not exist.
	gone func(ctx context.Context, namespace string) bool

	mu      sync.Mutex
	started map[watched]context.CancelFunc
	all     sync.WaitGroup
}

// watched is what one watch follows; without a namespace it is cluster-scoped.
type watched struct {
	schema.GroupVersionResource
	namespace string
}

func newWatcher(client metadata.Interface, changed func(string, metav1.Object), gone func(context.Context, string) bool) *watcher {
	return &watcher{client: client, changed: changed, gone: gone, started: map[watched]context.CancelFunc{}}
}

// watch begins to follow a resource in a namespace, once.
func (w *watcher) watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	this := watched{gvr, namespace}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.started[this]; ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.started[this] = cancel
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, gvr, namespace, 0, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=true" }).Informer()
	if observe(informer, slimMeta, func(o metav1.Object) {
		w.changed(objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName()), o)
	}) != nil || informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		w.failed(ctx, this, r, err)
	}) != nil {
		return // the informer is new: it can be observed
	}
	w.all.Go(func() { informer.RunWithContext(ctx) })
}

// failed ends a watch whose namespace is gone, and with it the agent's rights there. The
// lock is held while the API server is asked: a namespace that comes back is watched again.
func (w *watcher) failed(ctx context.Context, this watched, r *toolscache.Reflector, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if this.namespace == "" || !apierrors.IsForbidden(err) || !w.gone(ctx, this.namespace) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if cancel, ok := w.started[this]; ok {
		cancel()
		delete(w.started, this)
	}
}

// observe calls note for each change of what an informer sees, of which it keeps what slim
// leaves.
func observe(informer toolscache.SharedIndexInformer, slim toolscache.TransformFunc, note func(metav1.Object)) error {
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("set transform: %w", err)
	}
	if _, err := informer.AddEventHandler(handler(note)); err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	return nil
}

// handler calls note for what comes, changes or goes.
func handler(note func(metav1.Object)) toolscache.ResourceEventHandler {
	tell := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if object, ok := o.(metav1.Object); ok {
			note(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(before, after any) {
		a, okA := before.(metav1.Object)
		b, okB := after.(metav1.Object)
		if okA && okB && a.GetResourceVersion() == b.GetResourceVersion() {
			return // a new list, nothing else
		}
		tell(after)
	}}
}

// ownerKinds are what may stand between a workload and its Pods.
func ownerKinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		appsv1.SchemeGroupVersion.WithResource("replicasets"),
		appsv1.SchemeGroupVersion.WithResource("statefulsets"),
		appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		batchv1.SchemeGroupVersion.WithResource("jobs"),
	}
}

// newPods makes the caches that find Pods; run starts them. changed is called for the
// UIDs of a changed Pod or owner and of all that owns it.
func newPods(list toolscache.ListerWatcher, meta metadata.Interface, changed func(metav1.Object, *pods)) (*pods, []toolscache.SharedIndexInformer, error) {
	indexers := toolscache.Indexers{byOwner: ownerIndex}
	podInformer := toolscache.NewSharedIndexInformer(list, &corev1.Pod{}, 0, indexers)
	p := &pods{pods: podInformer.GetIndexer()}
	note := func(o metav1.Object) { changed(o, p) }
	informers := []toolscache.SharedIndexInformer{podInformer}
	if err := observe(podInformer, slimPod, note); err != nil {
		return nil, nil, err
	}
	for _, gvr := range ownerKinds() {
		informer := metadatainformer.NewFilteredMetadataInformer(meta, gvr, metav1.NamespaceAll, 0, indexers, nil).Informer()
		if err := observe(informer, slimMeta, note); err != nil {
			return nil, nil, err
		}
		p.owners = append(p.owners, informer.GetIndexer())
		informers = append(informers, informer)
	}
	return p, informers, nil
}
