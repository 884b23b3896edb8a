// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// watchHandlers queue the Services whose endpoints an event may change.
type watchHandlers struct {
	cached client.Reader
	ranges Ranges // or nil
	// batchPeriod is Config.BatchPeriod.
	batchPeriod time.Duration
}

// sources returns sources of all events that the endpoints of a Service depend on.
func (w *watchHandlers) sources(all cache.Cache) []source.Source {
	sources := []source.Source{
		source.Kind(all, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{}),
		source.Kind(all, &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(serviceOf)),
		source.Kind(all, &corev1.Endpoints{}, &handler.TypedEnqueueRequestForObject[*corev1.Endpoints]{}),
		source.Kind(all, &corev1.Pod{}, changeHandler(w.onPod)),
		source.Kind(all, &v1.DanmEp{}, changeHandler(w.onDanmEp)),
		source.Kind(all, nodeMetadata(), changeHandler(w.onNode)),
	}
	for _, kind := range kube.NetworkKinds() {
		sources = append(sources, source.Kind(all, kube.PartialMetadata(kind), changeHandler(func(ctx context.Context, before, after *metav1.PartialObjectMetadata, q queue) {
			w.onNetwork(ctx, kind, before, after, q)
		})))
	}
	if w.ranges != nil {
		sources = append(sources, source.Func(w.onRanges))
	}
	return sources
}

// changeHandler calls on for each change: before is nil for a new object, after for a deleted one.
// Objects of the first list are no changes, because all Services are reconciled then.
func changeHandler[T client.Object](on func(ctx context.Context, before, after T, q queue)) handler.TypedEventHandler[T, reconcile.Request] {
	var none T
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q queue) {
			if !e.IsInInitialList {
				on(ctx, none, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q queue) { on(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q queue) { on(ctx, e.Object, none, q) },
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onPod queues the Services that selected the Pod before, or select it now.
func (w *watchHandlers) onPod(ctx context.Context, before, after *corev1.Pod, q queue) {
	if before != nil && after != nil && equalPods(before, after) {
		return
	}
	labels := map[string]bool{}
	namespace := ""
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		namespace = pod.Namespace
		for _, text := range labelTexts(pod.Labels) {
			labels[text] = true
		}
	}
	labels[invalidSelector] = true
	if after != nil && (before == nil || !slices.Equal(podIPs(before), podIPs(after))) {
		w.enqueueServicesByPodIP(ctx, after, q)
	}
	for text := range labels {
		w.enqueueServices(ctx, q, client.InNamespace(namespace), client.MatchingFields{bySelector: text})
	}
}

// equalPods compares cached Pods, apart from their versions.
func equalPods(before, after *corev1.Pod) bool {
	b, a := *before, *after
	b.ResourceVersion, a.ResourceVersion = "", ""
	return equality.Semantic.DeepEqual(b, a)
}

// enqueueServicesByPodIP queues the Services of any namespace with an endpoint address that a Pod
// now has.
func (w *watchHandlers) enqueueServicesByPodIP(ctx context.Context, pod *corev1.Pod, q queue) {
	for _, ip := range podIPs(pod) {
		var list discoveryv1.EndpointSliceList
		if err := w.cached.List(ctx, &list, client.MatchingFields{byIP: ip}, client.UnsafeDisableDeepCopy); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list cached EndpointSlices")
		}
		for i := range list.Items {
			for _, req := range serviceOf(ctx, &list.Items[i]) {
				q.AddAfter(req, w.batchPeriod)
			}
		}
	}
}

// serviceOf returns the Service that a slice's label names, and its owner if that is another one
// because someone changed the label.
func serviceOf(_ context.Context, slice *discoveryv1.EndpointSlice) []reconcile.Request {
	key := client.ObjectKey{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	all := []reconcile.Request{{NamespacedName: key}}
	if owner := metav1.GetControllerOf(slice); owner != nil && owner.Name != key.Name {
		key.Name = owner.Name
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// onDanmEp queues the Services of a DanmEp's Pod. A Pod that is not in the cache yet queues them
// when it arrives.
func (w *watchHandlers) onDanmEp(ctx context.Context, before, after *v1.DanmEp, q queue) {
	ep := after
	if ep == nil {
		ep = before
	}
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	pod := &corev1.Pod{}
	if err := w.cached.Get(ctx, client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}, pod, client.UnsafeDisableDeepCopy); err == nil {
		w.onPod(ctx, nil, pod, q)
	}
}

// onNetwork queues the Services of a network that was created, deleted, or whose spec changed.
// Claims change only its status.
func (w *watchHandlers) onNetwork(ctx context.Context, kind string, before, after *metav1.PartialObjectMetadata, q queue) {
	if before != nil && after != nil && kube.SpecVersionOf(before) == kube.SpecVersionOf(after) {
		return
	}
	obj := after
	if obj == nil {
		obj = before
	}
	w.enqueueServices(ctx, q, client.MatchingFields{byNetwork: kube.NetworkRefOf(kind, obj).String()})
}

// onNode queues all Services when the zone of a Node changes.
func (w *watchHandlers) onNode(ctx context.Context, before, after *metav1.PartialObjectMetadata, q queue) {
	zone := func(node *metav1.PartialObjectMetadata) string {
		if node == nil {
			return ""
		}
		return node.Labels[corev1.LabelTopologyZone]
	}
	if after == nil || zone(before) == zone(after) {
		return // the Pods of a deleted Node have events of their own
	}
	for _, key := range w.listServices(ctx) {
		q.AddAfter(reconcile.Request{NamespacedName: key}, zoneBatchPeriod)
	}
}

// nodeMetadata returns an empty Node as metadata.
func nodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// onRanges queues all Services whenever the cluster's ranges change.
func (w *watchHandlers) onRanges(ctx context.Context, q queue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.ranges.Changed():
				w.enqueueServices(ctx, q)
			}
		}
	}()
	return nil
}

func (w *watchHandlers) enqueueServices(ctx context.Context, q queue, opts ...client.ListOption) {
	for _, key := range w.listServices(ctx, opts...) {
		q.AddAfter(reconcile.Request{NamespacedName: key}, w.batchPeriod)
	}
}

// listServices returns the cached Services that the options select.
func (w *watchHandlers) listServices(ctx context.Context, opts ...client.ListOption) []client.ObjectKey {
	var list corev1.ServiceList
	if err := w.cached.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		// The caches are filled before the first event, so this is a bug.
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list cached Services")
	}
	keys := make([]client.ObjectKey, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return keys
}
