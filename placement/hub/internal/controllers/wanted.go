// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// wanted is the outcome of a plan.
type wanted struct {
	replicas map[string]int64
	counted  bool
	short    string // what is missing
	reason   string // of that
	source   string
	digest   string
}

// has says that a cluster is to have the object.
func (w *wanted) has(cluster string) bool {
	_, ok := w.replicas[cluster]
	return ok
}

// wantedBefore is what was wanted by the stored Assignment.
func (p *pass) wantedBefore(a *v1alpha1.Assignment) wanted {
	w := wanted{replicas: map[string]int64{}, source: a.Spec.Decision.Source, digest: a.Spec.Decision.Digest}
	for _, t := range a.Spec.Targets {
		w.counted = w.counted || t.RequestedReplicas != nil
	}
	if p.alive() {
		w.replicas = decided(a)
	}
	return w
}

// decided are the clusters that are to have the object by an Assignment, with their replicas.
func decided(a *v1alpha1.Assignment) map[string]int64 {
	replicas := map[string]int64{}
	for _, t := range a.Spec.Targets {
		if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetPending {
			replicas[string(t.Cluster)] = deref(t.Replicas)
		}
	}
	return replicas
}

// sourceFollowed is the Source of a decision that only what the object is needed for decides.
const sourceFollowed = "dependency"

// plan decides which clusters are to have what, and claims the room.
func (p *pass) plan(ctx context.Context, a *v1alpha1.Assignment, followed map[string]bool) (wanted, error) {
	if !p.alive() {
		return wanted{replicas: map[string]int64{}}, nil // its deletion is the order to remove it everywhere
	}
	result := along(followed)
	if p.wish == nil {
		result, err := p.withoutPolicy(ctx, a, result)
		if err == nil {
			err = p.tooMany(a, result)
		}
		return result, err
	}
	s := p.situation(a)
	for name := range followed { // it stays there with what takes it along
		delete(s.VolumeClaims, name)
	}
	each := usage{}
	if s.Replicas != nil {
		each = perReplica(a.Spec.Decision.Requests)
	}
	err := p.ledger.decide(p.key, func(l *ledger) (claim, error) {
		s.Capacity = func(name string) (*int64, string) { return l.room(p.key, each, name, p.clusters[name].Spec.Limits) }
		plan, err := p.wish.Plan(s)
		if err != nil {
			return claim{}, err
		}
		result.counted, result.short, result.reason = plan.Divided, plan.Message, plan.Reason
		result.source, result.digest = p.wish.Source, p.wish.Digest()
		c := claim{each: each, replicas: map[string]int64{}}
		for name, n := range plan.Targets {
			if !plan.Divided && s.Replicas != nil {
				n = *s.Replicas
			}
			result.replicas[name], c.replicas[name] = n, n
		}
		for _, t := range a.Spec.Targets { // what leaves uses its room until it has left
			name := string(t.Cluster)
			c.replicas[name] = max(c.replicas[name], deref(t.RequestedReplicas))
		}
		return c, nil
	})
	p.restLost = p.losesRest(a)
	if err == nil && p.restLost && takesFrom(p.wantedBefore(a), result) {
		p.wish, p.fallback = nil, p.wish
		return p.withoutPolicy(ctx, a, along(followed))
	}
	if err == nil && p.fallsBack(a) && (result.short != "" || takesFrom(p.wantedBefore(a), result)) {
		p.wish, p.fallback = nil, p.wish
		return p.withoutPolicy(ctx, a, along(followed))
	}
	if err == nil {
		err = p.tooMany(a, result) // before its drain begins
	}
	if err == nil {
		err = p.startDrains(s, result)
	}
	return result, err
}

// along is what is wanted of an object where others take it along.
func along(followed map[string]bool) wanted {
	w := wanted{replicas: map[string]int64{}}
	for name := range followed {
		w.replicas[name], w.source = 0, sourceFollowed
	}
	return w
}

// fallsBack says that the Placement which placed the object selects it no more, and a
// ClusterPlacement does: the Placement may be about to be made again.
func (p *pass) fallsBack(a *v1alpha1.Assignment) bool {
	return !p.unselected && strings.HasPrefix(a.Spec.Decision.Source, "Placement ") && strings.HasPrefix(p.wish.Source, "ClusterPlacement ")
}

// losesRest says that the policy which said the rest for an annotated object is lost, or in a tie,
// while the annotation is as it was.
func (p *pass) losesRest(a *v1alpha1.Assignment) bool {
	d := a.Spec.Decision
	return p.wish.Source == v1alpha1.SourceAnnotation && p.wish.UID == "" &&
		d.Source == v1alpha1.SourceAnnotation && d.AnnotatedPolicyUID != "" && d.AnnotationDigest == p.annotationDigest()
}

// annotationDigest is the same as long as the object's annotation is.
func (p *pass) annotationDigest() string {
	sum := sha256.Sum256([]byte(p.annotations()[v1alpha1.ClustersAnnotation]))
	return hex.EncodeToString(sum[:8])
}

// takesFrom says that a plan takes the object from a cluster that has it, or replicas from one for
// another, or divides what each had whole. Fewer replicas in all are asked for by the object itself.
func takesFrom(before, after wanted) bool {
	taken, given := false, false
	for name, n := range before.replicas {
		if !after.has(name) {
			return true
		}
		taken = taken || after.counted && after.replicas[name] < n
	}
	for name, n := range after.replicas {
		given = given || n > before.replicas[name]
	}
	return taken && (given || !before.counted)
}

// tooMany refuses a plan for which an Assignment has no room, with the clusters that the object
// leaves.
func (p *pass) tooMany(a *v1alpha1.Assignment, w wanted) error {
	n := len(w.replicas)
	for _, t := range a.Spec.Targets {
		if !w.has(string(t.Cluster)) {
			n++
		}
	}
	if n <= v1alpha1.MaxTargets {
		return nil
	}
	return &policy.Error{Reason: v1alpha1.ReasonTooManyTargets, Object: w.source, Field: "spec.clusters", Message: fmt.Sprintf(
		"%d clusters are to have the object or are being left by it, and at most %d can: select fewer", n, v1alpha1.MaxTargets)}
}

// withoutPolicy decides for an object that no policy and no annotation is for. Losing them
// is no order to remove it: it stays in its clusters, and follows what needs it.
func (p *pass) withoutPolicy(ctx context.Context, a *v1alpha1.Assignment, followed wanted) (wanted, error) {
	before := p.wantedBefore(a)
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(before.replicas)), followed.has)
	placed := len(before.replicas) > 0 && before.source != sourceFollowed // by a policy or an annotation
	switch {
	case p.unselected, !placed && len(missing) == 0:
		return followed, nil
	case !placed && !v1alpha1.IsVolumeClaim(p.key.GroupKind):
		return followed, p.losesLeader(ctx)
	}
	where := slices.Sorted(maps.Keys(before.replicas))
	for name := range followed.replicas {
		if !before.has(name) {
			before.replicas[name] = 0
		}
	}
	if placed { // a claim that nothing needs any more stays without a word
		before.reason = v1alpha1.ReasonNoPolicy
		before.short = "no policy and no annotation selects it any more: it stays in " + strings.Join(where, ", ") +
			". To remove it there, run kubectl patchbay remove"
		switch {
		case p.restLost:
			before.short = fmt.Sprintf("the policy that said the rest for its annotation selects it no more, and the annotation alone "+
				"would take it from where it runs: it stays in %s. Make a policy, or change the annotation", strings.Join(where, ", "))
		case p.fallback != nil:
			before.short = fmt.Sprintf("%s selects it no more, and %s would take it from where it runs: it stays in %s. "+
				"To move it, set the annotation %s", before.source, p.fallback.Source, strings.Join(where, ", "), v1alpha1.ClustersAnnotation)
		}
	}
	return before, nil
}

// situation is what the plan depends on beside the wish.
func (p *pass) situation(a *v1alpha1.Assignment) policy.PlanInput {
	s := policy.PlanInput{
		Assigned: map[string]int64{}, Unconfirmed: map[string]bool{}, BeingRemoved: map[string]bool{},
		PolicyUnchanged: sameWish(a, p.wish), VolumeClaims: p.volumes(a),
	}
	if n, ok := replicasOf(p.object); ok {
		s.Replicas = new(int64(n))
	}
	returning := map[string]int64{} // what an order that is not carried out leaves, if it is taken back
	for _, t := range a.Spec.Targets {
		switch c := p.clusters[string(t.Cluster)]; t.State {
		case v1alpha1.TargetPending:
			if c != nil && reach(c) == policy.Reachable { // nothing was sent yet
				s.Assigned[string(t.Cluster)] = p.has(t)
			}
		case v1alpha1.TargetActive:
			s.Unconfirmed[string(t.Cluster)] = !p.facts[string(t.Cluster)].applied
			s.Assigned[string(t.Cluster)] = p.has(t)
		case v1alpha1.TargetDraining:
			s.Assigned[string(t.Cluster)] = deref(t.RequestedReplicas)
		case v1alpha1.TargetRemoving:
			if w := p.works[string(t.Cluster)]; w != nil && !removed(w) {
				n, _ := replicasIn(w)
				returning[string(t.Cluster)] = int64(n)
			}
		}
	}
	if len(s.Assigned) == 0 || p.wish.Spec.Replicas.Mode != v1alpha1.ReplicasSingle { // of Single only one is to have it
		maps.Copy(s.Assigned, returning)
		for name := range returning {
			s.BeingRemoved[name] = true
		}
	}
	for _, c := range p.clusters {
		_, has := s.Assigned[c.Name]
		s.Clusters = append(s.Clusters, policy.Cluster{
			Name: c.Name, Labels: c.Labels, Spec: &c.Spec, Reachability: reach(c),
			Deleting: c.DeletionTimestamp != nil, Lost: p.lost(c), DrainLimitReached: has && p.waits(c),
		})
	}
	return s
}

// sameWish says that the targets of an Assignment are of this wish. Those of one that was lost have no
// wish: they stay as they are.
func sameWish(a *v1alpha1.Assignment, w *policy.EffectivePolicy) bool {
	digest := a.Spec.Decision.Digest
	return digest == w.Digest() || digest == "" && a.UID == "" && len(a.Spec.Targets) > 0
}

// has is how many replicas a target counts with. What a cluster was asked for before it fell
// silent and has not confirmed is growth that goes elsewhere.
func (p *pass) has(t v1alpha1.Target) int64 {
	name := string(t.Cluster)
	c, f := p.clusters[name], p.facts[name]
	if c == nil || reach(c) == policy.Reachable || f.applied || t.Replicas == nil {
		return deref(t.Replicas)
	}
	return min(deref(t.Replicas), deref(f.replicas))
}

// volumes names, by cluster, a volume claim that the object has there: one that its Pod template
// names, or one that its agent reports for Pods which an operator makes for the object.
func (p *pass) volumes(a *v1alpha1.Assignment) map[string]string {
	claims := render.VolumeClaimNames(p.object)
	if v1alpha1.IsVolumeClaim(p.key.GroupKind) {
		claims = []string{p.key.Name}
	}
	found := map[string]string{}
	for _, t := range a.Spec.Targets {
		if t.State != v1alpha1.TargetActive && t.State != v1alpha1.TargetDraining {
			continue
		}
		name := string(t.Cluster)
		f := p.facts[name]
		made := f.refused == "" // also when it has not reported yet, or only that it is about to make it
		for _, uid := range f.uids {
			made = made || uid != ""
		}
		switch {
		case made && len(claims) > 0:
			found[name] = claims[0]
		case len(f.claims) > 0:
			found[name] = f.claims[0]
		}
	}
	return found
}
