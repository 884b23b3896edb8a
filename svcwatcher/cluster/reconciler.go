// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Reconciler makes the slices of one Service at a time what they should be.
type Reconciler struct {
	cfg      Config
	cached   client.Reader
	direct   client.Client
	networks *networks
	metrics  *metrics
	told     *told
	stale    workqueue.TypedRateLimiter[reconcile.Request]
}

var _ reconcile.Reconciler = (*Reconciler)(nil)

// Reconcile looks at one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := r.look(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the caches will say so, too
		r.metrics.stale.Inc()
		return reconcile.Result{RequeueAfter: r.stale.When(req)}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("make the endpoints of Service %s: %w", req.NamespacedName, err)
	}
	r.stale.Forget(req)
	return reconcile.Result{}, nil
}

// look compares what a Service has with what it should have.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey) error {
	svc := &corev1.Service{}
	err := r.cached.Get(ctx, key, svc)
	if apierrors.IsNotFound(err) {
		r.told.forget(key)
		return r.remove(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("get cached Service: %w", err)
	}
	judgement := svcwatcher.Judge(svc)
	r.tell(svc, judgement)
	switch judgement.Verdict {
	case svcwatcher.Served, svcwatcher.Broken:
		return r.serve(ctx, svc, judgement)
	default:
		return r.remove(ctx, key)
	}
}

// serve writes what is missing.
func (r *Reconciler) serve(ctx context.Context, svc *corev1.Service, judgement svcwatcher.Judgement) error {
	existing, err := r.slices(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return err
	}
	source, err := r.source(ctx, svc, judgement)
	if err != nil {
		return err
	}
	var groups []svcwatcher.Group
	if judgement.Verdict == svcwatcher.Served {
		groups = svcwatcher.Desired(source)
	} else {
		source.Pods, source.DanmEps, err = r.podsOf(ctx, svc.Namespace, existing)
		if err != nil {
			return err
		}
		groups = svcwatcher.Keep(source, existing)
	}
	changes := svcwatcher.Plan(svc, groups, existing)
	if err := r.write(ctx, &changes); err != nil {
		r.tellRefusal(svc, err)
		return err
	}
	if err := r.legacy(ctx, svc, groups); err != nil {
		return err
	}
	r.warn(svc, subjectWrite, "", "") // what was refused is no more
	return nil
}
