// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// decide returns the Assignment as it is to be next. After a mistake what was wanted
// before stays wanted, but moves that are under way go on.
func (p *pass) decide(ctx context.Context, mistake error) (*v1alpha1.Assignment, error) {
	if err := p.inventory(ctx); err != nil {
		return nil, err
	}
	next := p.record.DeepCopy()
	p.adopt(next)
	if p.object != nil {
		next.Spec.Object = p.reference()
		next.Spec.Decision.Requests = render.Requests(p.object)
	}
	followed, err := p.followedTo(ctx)
	if err != nil {
		return nil, err
	}
	w := p.wantedBefore(next)
	if mistake == nil {
		planned, err := p.plan(next, followed)
		if _, ok := errors.AsType[*policy.Error](err); err != nil && !ok {
			return nil, err
		}
		if mistake = err; err == nil {
			w = planned
			p.note(next, w)
		}
	}
	p.saidPlaced(mistake, w)
	if mistake == nil {
		if err := p.follow(ctx, next); err != nil {
			return nil, err
		}
	}
	p.step(ctx, next, w)
	p.ledger.put(p.key, claimOf(next))
	return next, nil
}

// wanted is the outcome of a plan.
type wanted struct {
	replicas map[string]int64
	counted  bool
	short    string
	source   string
	digest   string
}

// wantedBefore is what was wanted by the stored Assignment.
func (p *pass) wantedBefore(a *v1alpha1.Assignment) wanted {
	w := wanted{replicas: map[string]int64{}, source: a.Spec.Decision.Source, digest: a.Spec.Decision.Digest}
	for _, t := range a.Spec.Targets {
		w.counted = w.counted || t.Asked != nil
		if p.alive() && (t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetPending) {
			w.replicas[string(t.Cluster)] = deref(t.Replicas)
		}
	}
	return w
}

// plan asks the policy which clusters are to have what, and claims the room.
func (p *pass) plan(a *v1alpha1.Assignment, followed map[string]bool) (wanted, error) {
	result := wanted{replicas: map[string]int64{}}
	if p.alive() {
		for name := range followed {
			result.replicas[name], result.source = 0, "followed"
		}
	}
	if p.wish == nil {
		return result, nil
	}
	s := p.situation(a)
	each := usage{}
	if s.Replicas != nil {
		each = perReplica(a.Spec.Decision.Requests)
	}
	err := p.ledger.decide(p.key, func(l *ledger) (claim, error) {
		s.Room = func(name string) (*int64, string) { return l.room(p.key, each, name, p.clusters[name].Spec.Limits) }
		plan, err := p.wish.Plan(s)
		if err != nil {
			return claim{}, err
		}
		result.counted, result.short = plan.Counted, plan.Short
		result.source, result.digest = p.wish.Source, p.wish.Digest()
		c := claim{each: each, replicas: map[string]int64{}}
		for name, n := range plan.Wanted {
			if !plan.Counted && s.Replicas != nil {
				n = *s.Replicas
			}
			result.replicas[name], c.replicas[name] = n, n
		}
		for _, t := range a.Spec.Targets { // what leaves uses its room until it has left
			name := string(t.Cluster)
			c.replicas[name] = max(c.replicas[name], deref(t.Asked))
		}
		return c, nil
	})
	return result, err
}

// situation is what the plan depends on beside the wish.
func (p *pass) situation(a *v1alpha1.Assignment) policy.Situation {
	s := policy.Situation{
		Clusters: p.candidates(), Has: map[string]int64{},
		Same: a.Spec.Decision.Digest == p.wish.Digest(),
	}
	if n, ok := replicasOf(p.object); ok {
		s.Replicas = new(int64(n))
	}
	for _, t := range a.Spec.Targets {
		switch t.State {
		case v1alpha1.TargetActive, v1alpha1.TargetPending:
			s.Has[string(t.Cluster)] = deref(t.Replicas)
		case v1alpha1.TargetDraining:
			s.Has[string(t.Cluster)] = deref(t.Asked)
		case v1alpha1.TargetRemoving:
		}
	}
	return s
}

// note records what the decision was made from.
func (p *pass) note(a *v1alpha1.Assignment, w wanted) {
	d := &a.Spec.Decision
	before := p.wantedBefore(p.record)
	changed := !equality.Semantic.DeepEqual(before.replicas, w.replicas) || d.Digest != w.digest
	d.Source, d.Digest = w.source, w.digest
	if p.wish != nil {
		d.OnDelete = p.wish.Spec.OnDelete
	}
	if d.OnDelete == "" {
		d.OnDelete = v1alpha1.OnDeleteDelete
	}
	if changed || d.Since == nil {
		d.Number++
		d.Since = &metav1.MicroTime{Time: p.now()}
	}
}

func deref(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}
