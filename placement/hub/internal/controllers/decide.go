// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// decide returns the Assignment as it is to be next. After a mistake what was wanted
// before stays wanted, but moves that are under way go on.
func (p *pass) decide(ctx context.Context, mistake error) (*v1alpha1.Assignment, error) {
	if err := p.inventory(ctx); err != nil {
		return nil, err
	}
	next := p.record.DeepCopy()
	p.adopt(next)
	before := slices.Clone(next.Spec.Targets)
	if p.object != nil {
		next.Spec.Object = p.reference()
		next.Spec.Decision.Requests = render.PodRequests(p.object)
	}
	followed, err := p.followedTo(ctx)
	if err != nil {
		return nil, err
	}
	w := p.wantedBefore(next)
	if mistake == nil {
		planned, err := p.plan(ctx, next, followed)
		if _, ok := errors.AsType[*policy.Error](err); err != nil && !ok {
			return nil, err
		}
		if mistake = err; err == nil {
			w = planned
			p.note(next, w)
		}
	}
	if mistake != nil || p.wish == nil {
		for _, t := range before { // it waits for a person, not for a drain
			p.drains.stay(string(t.Cluster), p.key)
		}
	}
	p.saidPlaced(mistake, w)
	if mistake == nil {
		if err := p.follow(ctx, next); err != nil {
			return nil, err
		}
	}
	p.step(ctx, next, w)
	if err := p.sureToLeave(ctx, before, next); err != nil {
		return nil, err
	}
	p.ledger.put(p.key, claimOf(next))
	return next, nil
}

// note records what the decision was made from.
func (p *pass) note(a *v1alpha1.Assignment, w wanted) {
	d := &a.Spec.Decision
	changed := !equality.Semantic.DeepEqual(decided(p.record), w.replicas) || d.Digest != w.digest
	d.Source, d.Digest = w.source, w.digest
	if p.wish != nil {
		if d.PolicyUID = p.wish.UID; p.wish.Source == v1alpha1.SourceAnnotation {
			d.PolicyUID = "" // the policy has not placed it
		}
		if !p.restLost {
			d.AnnotatedPolicyUID, d.AnnotationDigest = "", ""
			if p.wish.Source == v1alpha1.SourceAnnotation && p.wish.UID != "" {
				d.AnnotatedPolicyUID, d.AnnotationDigest = p.wish.UID, p.annotationDigest()
			}
		}
		if p.wish.UID != "" || d.OnDelete == "" { // an annotation alone leaves what a policy said before
			d.OnDelete = p.wish.Spec.OnDelete
		}
	}
	if d.OnDelete == "" {
		d.OnDelete = v1alpha1.DefaultOnDelete(p.key.GroupKind)
	}
	if changed || d.LastChangeTime == nil {
		d.Number++
		d.LastChangeTime = &metav1.MicroTime{Time: p.now()}
	}
}

// leaves says that the object still leaves a cluster that is being drained.
func (p *pass) leaves(a *v1alpha1.Assignment, cluster string) bool {
	at := slices.IndexFunc(a.Spec.Targets, isIn(cluster))
	return at >= 0 && drained(p.clusters[cluster]) && leaves(a.Spec.Targets[at])
}

// leaves says that a target loses the object, or replicas of it.
func leaves(t v1alpha1.Target) bool {
	return t.State != v1alpha1.TargetActive || deref(t.RequestedReplicas) > deref(t.Replicas)
}

// isIn says of a target whether it is of a cluster.
func isIn(cluster string) func(v1alpha1.Target) bool {
	return func(t v1alpha1.Target) bool { return string(t.Cluster) == cluster }
}

func deref(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}
