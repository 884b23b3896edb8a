// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// Add makes a manager run a Reconciler while it leads. The manager's client must read
// from the API server, and its cache be made with Cached; DanmEps and Nodes (as
// metadata, with the label of their zone) are cached by others.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	r := &Reconciler{
		cfg: cfg.withDefaults(), cached: m.GetCache(), direct: m.GetClient(), metrics: newMetrics(cfg.Registry), told: &told{},
		networks: &networks{metadata: m.GetCache(), direct: m.GetClient()}, stale: limiter(again), permissions: &permissions{direct: m.GetClient()},
	}
	if err := index(ctx, m.GetCache()); err != nil {
		return err
	}
	c, err := controller.New("services", m, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: r.cfg.Workers,
		RateLimiter: limiter(leastDelay),
	})
	if err != nil {
		return fmt.Errorf("make controller of Services: %w", err)
	}
	for _, s := range r.sources(m.GetCache()) {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watch for Services: %w", err)
		}
	}
	return nil
}

// sources are all that the endpoints of a Service depend on.
func (r *Reconciler) sources(all cache.Cache) []source.Source {
	sources := []source.Source{
		source.Kind(all, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{}),
		source.Kind(all, &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(serviceOf)),
		source.Kind(all, &corev1.Endpoints{}, &handler.TypedEnqueueRequestForObject[*corev1.Endpoints]{}),
		source.Kind(all, &corev1.Pod{}, changes(r.onPod)),
		source.Kind(all, &v1.DanmEp{}, changes(r.onDanmEp)),
		source.Kind(all, nodeMeta(), changes(r.onNode)),
	}
	for _, kind := range objects.Kinds() {
		sources = append(sources, source.Kind(all, objects.Metadata(kind), changes(func(ctx context.Context, before, after *metav1.PartialObjectMetadata, q queue) {
			r.onNetwork(ctx, kind, before, after, q)
		})))
	}
	if r.cfg.Ranges != nil {
		sources = append(sources, source.Func(r.onRanges))
	}
	return sources
}

// limiter tries the same request after a delay that doubles each time.
func limiter(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, mostDelay)
}

// serviceOf names the Service of a slice, and the one that owns it if somebody changed
// the label: it misses the slice.
func serviceOf(_ context.Context, slice *discoveryv1.EndpointSlice) []reconcile.Request {
	key := client.ObjectKey{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	all := []reconcile.Request{{NamespacedName: key}}
	if owner := metav1.GetControllerOf(slice); owner != nil && owner.Name != key.Name {
		key.Name = owner.Name
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}
