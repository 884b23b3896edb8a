// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
)

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
