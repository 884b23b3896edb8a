// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Reconciler makes the slices of one Service at a time what they should be.
type Reconciler struct {
	cfg         Config
	cached      client.Reader
	direct      client.Client
	networks    *networks
	permissions *permissions
	metrics     *metrics
	told        *told
	stale       workqueue.TypedRateLimiter[reconcile.Request]
}

var _ reconcile.Reconciler = (*Reconciler)(nil)

// Reconcile looks at one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	after, err := r.look(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the caches will say so, too
		r.metrics.stale.Inc()
		return reconcile.Result{RequeueAfter: r.stale.When(req)}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("make the endpoints of Service %s: %w", req.NamespacedName, err)
	}
	r.stale.Forget(req)
	return reconcile.Result{RequeueAfter: after}, nil
}

// look compares what a Service has with what it should have, and says when to look again
// although nothing has changed; zero for never.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	svc := &corev1.Service{}
	err := r.cached.Get(ctx, key, svc)
	if apierrors.IsNotFound(err) {
		r.told.forget(key)
		return 0, r.remove(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("get cached Service: %w", err)
	}
	judgement := svcwatcher.Judge(svc)
	r.tell(svc, judgement)
	switch judgement.Verdict {
	case svcwatcher.Served, svcwatcher.Broken:
		return r.serve(ctx, svc, judgement)
	default:
		return 0, r.remove(ctx, key)
	}
}

// serve writes what is missing.
func (r *Reconciler) serve(ctx context.Context, svc *corev1.Service, judgement svcwatcher.Judgement) (time.Duration, error) {
	existing, err := r.slices(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return 0, err
	}
	source, err := r.source(ctx, svc, judgement)
	if err != nil {
		return 0, err
	}
	if judgement.Verdict != svcwatcher.Served {
		source.Pods, source.DanmEps, err = r.podsOf(ctx, svc.Namespace, existing)
		if err != nil {
			return 0, err
		}
	}
	if source.Shared, err = r.permissions.of(ctx, source); err != nil {
		return 0, err
	}
	var want svcwatcher.Endpoints
	if judgement.Verdict == svcwatcher.Served {
		want = svcwatcher.Desired(source)
	} else {
		want.Groups = svcwatcher.Keep(source, existing)
	}
	r.tellWithheld(svc, want.Withheld)
	changes := svcwatcher.Plan(svc, want.Groups, existing)
	if err := r.write(ctx, &changes); err != nil {
		r.tellRefusal(svc, err)
		return 0, err
	}
	if err := r.legacy(ctx, svc, want.Groups); err != nil {
		return 0, err
	}
	r.warn(svc, subjectWrite, "", "") // what was refused is no more
	if len(want.Withheld) > 0 || len(source.Shared) > 0 {
		// Nothing is watched that says that another has given the address back, or that
		// a netadmin has changed clusterSubnets.
		return withheldAgain, nil
	}
	return 0, nil
}
