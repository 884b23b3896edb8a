// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

const (
	// drainRetry is how long to wait for another object to leave a cluster.
	drainRetry = time.Second
	// listWait is how long to wait for a kind whose objects are not listed yet.
	listWait = 5 * time.Second
)

var (
	// errNoNamespace says that a Cluster's namespace is not there.
	errNoNamespace = errors.New("the cluster's namespace is not there")
	// errDrainFull says that as many objects leave a cluster as its drain allows at a time.
	errDrainFull = errors.New("spec.drain.maxConcurrentMoves objects leave the cluster already")
	// errStale says that a Work is not what the cache has.
	errStale = errors.New("it has been changed since")
)

// pass is one way of one object through placement.
type pass struct {
	*hub
	key      Key
	kind     kind
	object   *unstructured.Unstructured   // nil: there is none
	record   *v1alpha1.Assignment         // as stored; without UID: there is none
	works    map[string]*v1alpha1.Work    // by cluster
	facts    map[string]facts             // by cluster: what the Works report
	clusters map[string]*v1alpha1.Cluster // all that exist
	wish     *policy.EffectivePolicy      // nil: no policy and no annotation is for it
	policies string                       // what they say, also of their mistakes
	// fallback is a policy of a lower rank that is not followed, since it would take the object from
	// where a lost one has placed it.
	fallback *policy.EffectivePolicy
	// restLost says that the object is annotated, and has lost the policy that said the rest.
	restLost bool
	// unselected says that the policy which placed it no longer selects it, and that this is an
	// order to remove it.
	unselected bool
	after      time.Duration // when to look again
	done       bool          // all is as wanted, as far as orders go
	said       conditions    // what Assignment.status is to say
	ordered    atomic.Bool   // a Work was written: there will be news soon
}

// Reconcile takes one object through placement.
func (h *hub) Reconcile(ctx context.Context, key Key) (reconcile.Result, error) {
	if err := h.load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	k, served := h.kinds.get(key.GroupKind)
	switch {
	case !h.kinds.looked():
		return reconcile.Result{RequeueAfter: lookSoon}, nil
	case !served: // its definition is gone: what is placed stays
		return reconcile.Result{}, nil
	}
	if !h.listed(ctx, k) {
		return reconcile.Result{RequeueAfter: listWait}, nil
	}
	p := &pass{hub: h, key: key, kind: k}
	concerned, err := p.read(ctx)
	if err != nil || !concerned {
		return reconcile.Result{}, err
	}
	behind, err := p.behind(ctx)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case behind:
		return reconcile.Result{RequeueAfter: p.staleAgain()}, nil
	}
	err = p.run(ctx)
	switch {
	case err == nil:
		p.fresh()
		return reconcile.Result{RequeueAfter: p.after}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, errStale):
		return reconcile.Result{RequeueAfter: p.staleAgain()}, nil
	case errors.Is(err, errDrainFull):
		return reconcile.Result{RequeueAfter: drainRetry}, nil
	case errors.Is(err, errNoNamespace): // the Cluster is new, or somebody has deleted it
		return reconcile.Result{RequeueAfter: p.staleAgain()}, nil
	}
	return reconcile.Result{}, fmt.Errorf("place %s: %w", key, err)
}

// run is one pass over an object that concerns us. The hub may be killed between any two
// of its writes: each leaves what the next pass goes on from.
func (p *pass) run(ctx context.Context) error {
	// A mistake of a person leaves everything as it is, and is said at the end.
	mistake := p.resolve(ctx)
	if _, ok := errors.AsType[*policy.Error](mistake); mistake != nil && !ok {
		return mistake
	}
	next, err := p.decide(ctx, mistake)
	if err != nil {
		return err
	}
	if len(next.Spec.Targets) > 0 {
		if err := p.hold(ctx); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			if err := p.assign(ctx, next); err != nil {
				return err
			}
			p.drains.finish(p.key, func(cluster string) bool { return p.leaves(next, cluster) },
				func(cluster string) bool { return slices.ContainsFunc(next.Spec.Targets, isIn(cluster)) })
			return nil
		}, p.send, p.report, p.release,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send renders to the clusters that the hub has a namespace for. Nothing goes to a namespace that
// is somebody else's, and one that is missing is reported: whoever waits for the object would not
// know why it does not come.
func (p *pass) send(ctx context.Context) error {
	maps.DeleteFunc(p.clusters, func(name string, _ *v1alpha1.Cluster) bool {
		b, _ := p.presence.of(name)
		return b.taken
	})
	err := p.render(ctx)
	if !errors.Is(err, errNoNamespace) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	p.said.replace(v1alpha1.ConditionRendered, v1alpha1.ReasonNamespaceMissing, err.Error()+"; the hub makes the namespace again")
	if err := p.report(ctx); err != nil {
		return err
	}
	return errNoNamespace
}
