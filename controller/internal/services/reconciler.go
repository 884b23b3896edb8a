// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Reconciler makes the EndpointSlices of one Service at a time what svcwatcher computes.
type Reconciler struct {
	reader        *endpointReader
	writer        *endpointWriter
	reporter      *eventReporter
	tenantSubnets *tenantSubnetCache
	metrics       *Metrics
	staleBackoff  workqueue.TypedRateLimiter[reconcile.Request]
}

// newReconciler wires a Reconciler. The cached reader is the manager's cache; the client reads from
// the API server.
func newReconciler(cfg Config, cached client.Reader, c client.Client, m *Metrics) *Reconciler {
	return &Reconciler{
		reader:        &endpointReader{cached: cached, direct: c, networks: &networkCache{metadata: cached, direct: c}, ranges: cfg.Ranges},
		writer:        &endpointWriter{client: c, metrics: m},
		reporter:      &eventReporter{events: cfg.Events},
		tenantSubnets: &tenantSubnetCache{direct: c},
		metrics:       m,
		staleBackoff:  newRateLimiter(staleRetryDelay),
	}
}

// Reconcile reconciles one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	after, err := r.reconcileService(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the cache was behind
		r.metrics.stale.Inc()
		return reconcile.Result{RequeueAfter: r.staleBackoff.When(req)}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reconcile the endpoints of Service %s: %w", req.NamespacedName, err)
	}
	r.staleBackoff.Forget(req)
	return reconcile.Result{RequeueAfter: after}, nil
}

// reconcileService returns when to reconcile the Service again although nothing changed; zero for
// never.
func (r *Reconciler) reconcileService(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	svc := &corev1.Service{}
	err := r.reader.cached.Get(ctx, key, svc)
	if apierrors.IsNotFound(err) {
		r.reporter.forget(key)
		return 0, r.deleteManagedObjects(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("get cached Service: %w", err)
	}
	class := svcwatcher.Classify(svc)
	r.reporter.reportClassification(svc, class)
	switch class.Class {
	case svcwatcher.Managed, svcwatcher.Invalid:
		return r.reconcileEndpoints(ctx, svc, class)
	default:
		return 0, r.deleteManagedObjects(ctx, key)
	}
}

// reconcileEndpoints computes the endpoints of a Service, and writes what differs.
func (r *Reconciler) reconcileEndpoints(ctx context.Context, svc *corev1.Service, class svcwatcher.Classification) (time.Duration, error) {
	existing, err := r.reader.cachedSlices(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return 0, err
	}
	source, err := r.readSource(ctx, svc, class, existing)
	if err != nil {
		return 0, err
	}
	var want svcwatcher.Endpoints
	if class.Class == svcwatcher.Managed {
		want = svcwatcher.Desired(source)
	} else {
		want.Groups = svcwatcher.Retained(source, existing)
	}
	r.reporter.reportWithheld(svc, want.Withheld)
	changes := svcwatcher.Plan(svc, want.Groups, existing)
	if err := r.writer.applyChanges(ctx, &changes); err != nil {
		r.reporter.reportRejectedWrite(svc, err)
		return 0, err
	}
	if err := r.reconcileLegacyEndpoints(ctx, svc, want.Groups); err != nil {
		return 0, err
	}
	r.reporter.warn(svc, subjectWrite, "", "") // an earlier rejection is over
	if len(want.Withheld) > 0 || len(source.PermittedSubnets) > 0 {
		// No watch reports that another Pod has released the address, or that an administrator
		// has changed allowedClusterSubnets.
		return withheldRecheckPeriod, nil
	}
	return 0, nil
}

// readSource reads what the endpoints are computed from, and reports the networks that the Service
// cannot use.
func (r *Reconciler) readSource(
	ctx context.Context, svc *corev1.Service, class svcwatcher.Classification, existing []discoveryv1.EndpointSlice,
) (*svcwatcher.Snapshot, error) {
	states, err := r.reader.networkStates(ctx, class.Request, svc.Namespace)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		r.reporter.reportNetworkState(svc, class.Request.Networks[i], state)
	}
	source, err := r.reader.readSnapshot(ctx, svc, class.Request, states)
	if err != nil {
		return nil, err
	}
	if class.Class != svcwatcher.Managed {
		if source.Pods, source.DanmEps, err = r.reader.podsBehindSlices(ctx, svc.Namespace, existing); err != nil {
			return nil, err
		}
	}
	source.PermittedSubnets, err = r.tenantSubnets.permittedFor(ctx, source)
	return source, err
}

// reconcileLegacyEndpoints writes v1 Endpoints for a Service that requests them, and deletes those of
// a Service that does not any more.
func (r *Reconciler) reconcileLegacyEndpoints(ctx context.Context, svc *corev1.Service, groups []svcwatcher.Group) error {
	existing, err := r.reader.cachedLegacyEndpoints(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return err
	}
	if !svcwatcher.WantsLegacyEndpoints(svc) {
		return r.writer.deleteLegacyEndpoints(ctx, existing)
	}
	want := svcwatcher.LegacyEndpoints(svc, groups)
	if existing == nil {
		return r.createLegacyEndpoints(ctx, svc, want)
	}
	return r.writer.updateLegacyEndpoints(ctx, want, existing)
}

// createLegacyEndpoints creates Endpoints, and reports on the Service that the API server rejects
// them, as it does when another owner has Endpoints of that name.
func (r *Reconciler) createLegacyEndpoints(ctx context.Context, svc *corev1.Service, want *corev1.Endpoints) error {
	err := r.writer.createLegacyEndpoints(ctx, want)
	r.reporter.reportRejectedWrite(svc, err)
	return err
}

// deleteManagedObjects deletes everything of ours from a Service that must not have any. A new
// leader's cache may be older than what the last leader acted on, so the API server is asked for
// the Service first.
func (r *Reconciler) deleteManagedObjects(ctx context.Context, key client.ObjectKey) error {
	existing, err := r.reader.cachedSlices(ctx, key)
	if err != nil {
		return err
	}
	endpoints, err := r.reader.cachedLegacyEndpoints(ctx, key)
	if err != nil || len(existing) == 0 && endpoints == nil {
		return err
	}
	if managed, err := r.reader.isManaged(ctx, key); err != nil || managed {
		return err // an event follows when the cache has caught up
	}
	if err := r.writer.applyChanges(ctx, &svcwatcher.Changes{Delete: existing}); err != nil {
		return err
	}
	return r.writer.deleteLegacyEndpoints(ctx, endpoints)
}

var _ reconcile.Reconciler = (*Reconciler)(nil)
