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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// watcher follows the objects that are ours, one watch per resource, as metadata: each
// change of an object, of its status too, changes its resourceVersion.
type watcher struct {
	client  metadata.Interface
	changed func(key string, o metav1.Object)

	mu      sync.Mutex
	started map[schema.GroupVersionResource]struct{}
	all     sync.WaitGroup
}

func newWatcher(client metadata.Interface, changed func(string, metav1.Object)) *watcher {
	return &watcher{client: client, changed: changed, started: map[schema.GroupVersionResource]struct{}{}}
}

// watch begins to follow a resource, once.
func (w *watcher) watch(ctx context.Context, gvr schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.started[gvr]; ok {
		return
	}
	w.started[gvr] = struct{}{}
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, gvr, metav1.NamespaceAll, 0, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=true" }).Informer()
	if err := w.follow(informer, func(o metav1.Object) {
		w.changed(objectKey(gvr.Group, gvr.Resource, o.GetNamespace(), o.GetName()), o)
	}); err != nil {
		return // the informer is new: it can be followed
	}
	w.all.Go(func() { informer.RunWithContext(ctx) })
}

// follow calls note for each change, and slims what the informer keeps.
func (w *watcher) follow(informer toolscache.SharedIndexInformer, note func(metav1.Object)) error {
	if err := informer.SetTransform(slimMeta); err != nil {
		return fmt.Errorf("set transform: %w", err)
	}
	_, err := informer.AddEventHandler(handler(note))
	if err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	return nil
}

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

// slimMeta keeps names, versions and owners.
func slimMeta(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
		}}, nil
	}
	return o, nil
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
	informers := []toolscache.SharedIndexInformer{podInformer}
	p := &pods{pods: podInformer.GetIndexer()}
	if err := podInformer.SetTransform(slimPod); err != nil {
		return nil, nil, fmt.Errorf("set transform: %w", err)
	}
	for _, gvr := range ownerKinds() {
		informer := metadatainformer.NewFilteredMetadataInformer(meta, gvr, metav1.NamespaceAll, 0, indexers, nil).Informer()
		if err := informer.SetTransform(slimMeta); err != nil {
			return nil, nil, fmt.Errorf("set transform: %w", err)
		}
		p.owners = append(p.owners, informer.GetIndexer())
		informers = append(informers, informer)
	}
	for _, informer := range informers {
		if _, err := informer.AddEventHandler(handler(func(o metav1.Object) { changed(o, p) })); err != nil {
			return nil, nil, fmt.Errorf("add handler: %w", err)
		}
	}
	return p, informers, nil
}

// settleTime lets changes that come together be looked at together.
const settleTime = 20 * time.Millisecond
