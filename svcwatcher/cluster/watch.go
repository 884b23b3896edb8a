// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// changes calls on for each change: before is nil for what came, after for what went.
// What was there at the start is no change, as all Services are looked at then.
func changes[T client.Object](on func(ctx context.Context, before, after T, q queue)) handler.TypedEventHandler[T, reconcile.Request] {
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

// onPod queues the Services that picked the Pod before or pick it now.
func (r *Reconciler) onPod(ctx context.Context, before, after *corev1.Pod, q queue) {
	if before != nil && after != nil && samePod(before, after) {
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
	labels[brokenSelector] = true
	if after != nil && (before == nil || !slices.Equal(podIPs(before), podIPs(after))) {
		r.queueHolders(ctx, after, q)
	}
	for text := range labels {
		r.queueServices(ctx, q, client.InNamespace(namespace), client.MatchingFields{bySelector: text})
	}
}

// queueHolders queues the Services of any namespace that lead to an address which a Pod
// has got.
func (r *Reconciler) queueHolders(ctx context.Context, pod *corev1.Pod, q queue) {
	for _, ip := range podIPs(pod) {
		var list discoveryv1.EndpointSliceList
		if err := r.cached.List(ctx, &list, client.MatchingFields{byIP: ip}, client.UnsafeDisableDeepCopy); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to list cached EndpointSlices")
		}
		for i := range list.Items {
			for _, req := range serviceOf(ctx, &list.Items[i]) {
				q.AddAfter(req, r.cfg.Gather)
			}
		}
	}
}

// onRanges queues all Services whenever the cluster uses other ranges.
func (r *Reconciler) onRanges(ctx context.Context, q queue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.cfg.Ranges.Changed():
				r.queueServices(ctx, q)
			}
		}
	}()
	return nil
}

// samePod compares what is cached, but for the version.
func samePod(before, after *corev1.Pod) bool {
	b, a := *before, *after
	b.ResourceVersion, a.ResourceVersion = "", ""
	return equality.Semantic.DeepEqual(b, a)
}

// onDanmEp queues the Services of the Pod, which may not be in the cache yet: it will
// be a change then.
func (r *Reconciler) onDanmEp(ctx context.Context, before, after *v1.DanmEp, q queue) {
	ep := after
	if ep == nil {
		ep = before
	}
	if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	pod := &corev1.Pod{}
	if err := r.cached.Get(ctx, client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}, pod, client.UnsafeDisableDeepCopy); err == nil {
		r.onPod(ctx, nil, pod, q)
	}
}

// onNetwork queues the Services of a network that came, went, or has another spec.
// Addresses that are claimed change its metadata all the time.
func (r *Reconciler) onNetwork(ctx context.Context, kind string, before, after *metav1.PartialObjectMetadata, q queue) {
	if before != nil && after != nil && objects.VersionOf(before) == objects.VersionOf(after) {
		return
	}
	obj := after
	if obj == nil {
		obj = before
	}
	r.queueServices(ctx, q, client.MatchingFields{byNetwork: objects.RefOf(kind, obj).String()})
}

// onNode queues all Services when a Node has another zone.
func (r *Reconciler) onNode(ctx context.Context, before, after *metav1.PartialObjectMetadata, q queue) {
	zone := func(node *metav1.PartialObjectMetadata) string {
		if node == nil {
			return ""
		}
		return node.Labels[corev1.LabelTopologyZone]
	}
	if after == nil || zone(before) == zone(after) {
		return // what is said of a Node that went is said of its Pods, too
	}
	for _, key := range r.services(ctx) {
		q.AddAfter(reconcile.Request{NamespacedName: key}, zoneDelay)
	}
}

// services returns the cached Services that the options select.
func (r *Reconciler) services(ctx context.Context, opts ...client.ListOption) []client.ObjectKey {
	var list corev1.ServiceList
	if err := r.cached.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		// The caches have synced before any change comes, so this is a mistake of ours.
		logr.FromContextOrDiscard(ctx).Error(err, "List cached Services")
	}
	keys := make([]client.ObjectKey, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return keys
}

func (r *Reconciler) queueServices(ctx context.Context, q queue, opts ...client.ListOption) {
	for _, key := range r.services(ctx, opts...) {
		q.AddAfter(reconcile.Request{NamespacedName: key}, r.cfg.Gather)
	}
}
