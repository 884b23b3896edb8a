// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

// Times between attempts after an error. The default of controller-runtime doubles up to 17 minutes: after an API server
// was away for some minutes, the operator would stand still for as long again.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 15 * time.Second
)

// Add adds the controller of Installations to a manager whose cache has CacheByObject.
func Add(ctx context.Context, m manager.Manager) error {
	events, err := newEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	r := &Reconciler{
		Cache: m.GetCache(), Live: m.GetClient(), Status: m.GetClient().Status(),
		Applier: apply.New(m.GetClient(), m.GetCache()), Uninstaller: &uninstall.Uninstaller{Client: m.GetClient(), Now: time.Now}, Events: events, Now: time.Now,
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: v1alpha1.InstallationName}}}
	})
	b := builder.ControllerManagedBy(m).Named("installation").
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry)}).
		For(&v1alpha1.Installation{}, builder.WithPredicates(changes())).
		Watches(&corev1.Pod{}, all).Watches(&appsv1.DaemonSet{}, all).Watches(&appsv1.Deployment{}, all)
	for _, kind := range apply.WatchedKinds() {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(kind)
		b = b.WatchesMetadata(o, all)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	return nil
}

// changes are the events of the Installation that are a reason to look again: annotations tell how it is uninstalled. A
// write of the status is none.
func changes() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// CacheByObject limits the cache to the objects that the operator has applied, and to the namespaces of
// Patchbay.
func CacheByObject() (map[client.Object]cache.ByObject, error) {
	applied, err := labels.NewRequirement(render.InstallationLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("make selector: %w", err)
	}
	selector := labels.NewSelector().Add(*applied)
	own := map[string]cache.Config{render.Namespace: {}}
	all := map[client.Object]cache.ByObject{&corev1.Pod{}: {Namespaces: own, Transform: cache.TransformStripManagedFields()}}
	for _, kind := range apply.WatchedKinds() {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(kind)
		options := cache.ByObject{Label: selector}
		switch kind.Kind {
		case "ServiceAccount", "Service", "DaemonSet", "Deployment", "PodDisruptionBudget":
			options.Namespaces = own
		case "Role", "RoleBinding":
			options.Namespaces = map[string]cache.Config{render.Namespace: {}, render.AgentSecretsNamespace: {}}
		}
		all[o] = options
	}
	return all, nil
}

// newEventRecorder returns a recorder of Events about the Installation. It stops with ctx.
func newEventRecorder(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme) (EventRecorder, error) {
	c, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	events := b.NewRecorder(scheme, corev1.EventSource{Component: render.Manager}).WithLogger(logr.FromContextOrDiscard(ctx))
	return recorder{events}, nil
}

// recorder shortens messages to what an Event may have.
type recorder struct{ events record.EventRecorder }

// Event implements EventRecorder.
func (r recorder) Event(of *v1alpha1.Installation, kind, reason, message string) {
	const maxLength = 1024
	r.events.Event(of, kind, reason, text.Truncate(message, maxLength))
}
