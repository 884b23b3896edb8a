// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// DependsOnDependents reports whether the decision about an object without a policy takes it from
// clusters because no dependent needs it there. All dependents must be known then.
func DependsOnDependents(s *scope.Scope, r scope.Resolution, current *v1alpha1.Assignment) bool {
	if !s.Alive() || r.Mistake != nil || r.Policy != nil || r.Unselected || v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return false
	}
	before := storedDecision(s, current)
	return !wasPlaced(before) && !allRequired(before, s.RequiredIn)
}

// wasPlaced reports whether a policy or an annotation made a decision, not the dependents.
func wasPlaced(d Decision) bool { return len(d.Replicas) > 0 && d.Source != sourceDependents }

// allRequired reports whether dependents need the object in all of its clusters.
func allRequired(d Decision, requiredIn map[string]bool) bool {
	for name := range d.Replicas {
		if !requiredIn[name] {
			return false
		}
	}
	return true
}

// Assign decides which clusters are to have the object. It reserves their capacity, and a slot of
// each draining cluster that the object leaves. After a mistake the earlier decision stays in force.
// Unknown is why not all dependents are known; it matters where DependsOnDependents. The error is
// limits.ErrDrainLimit when other objects have taken the slots meanwhile: then decide again.
func Assign(
	s *scope.Scope, r scope.Resolution, current *v1alpha1.Assignment, unknown *scope.UnknownDependents,
	capacity *limits.Capacity, drains *limits.Drains,
) (Decision, error) {
	d := Decision{Mistake: r.Mistake}
	var err error
	switch {
	case r.Mistake != nil:
	case !s.Alive(): // its deletion is the order to remove it everywhere
		d.Replicas = map[string]int64{}
		if isInTransfer(current.Spec.Volume) { // no order to remove it before the volume has its place
			d.Replicas = desiredReplicas(current)
		}
	case r.Policy == nil:
		d = assignWithoutPolicy(s, r, current, unknown)
		keepStarted(s, current, &d)
	default:
		d, err = assignByPolicy(s, r, current, capacity, drains)
	}
	if mistake, ok := errors.AsType[*policy.Error](err); ok {
		d.Mistake, err = mistake, nil
	}
	if err != nil {
		return Decision{}, err
	}
	if d.Mistake != nil {
		kept := storedDecision(s, current)
		for _, t := range current.Spec.Targets { // the object stays where a dependent needs it again
			if name := string(t.Cluster); s.RequiredIn[name] && !kept.includes(name) {
				kept.Replicas[name] = 0
			}
		}
		keepStarted(s, current, &kept)
		kept.Policy, kept.Mistake, kept.AnnotationPolicyLost, kept.RequeueAfter = d.Policy, d.Mistake, d.AnnotationPolicyLost, d.RequeueAfter
		d = kept
	}
	if d.Mistake != nil && d.Mistake.Reason == v1alpha1.ReasonVolumesRefused && r.Policy != nil && r.Policy.Spec.Volumes == v1alpha1.VolumesTransfer {
		d.RequeueAfter = scope.Sooner(d.RequeueAfter, volumesRetry)
	}
	if d.Mistake != nil || d.Policy == nil { // the object waits for a user, not for a drain
		staysInAll(s, current, drains, d)
	}
	return d, nil
}

// assignByPolicy decides by the effective policy.
func assignByPolicy(
	s *scope.Scope, r scope.Resolution, current *v1alpha1.Assignment, capacity *limits.Capacity, drains *limits.Drains,
) (Decision, error) {
	d := requiredDecision(s.RequiredIn)
	d.Policy, d.AnnotationPolicyLost = r.Policy, losesAnnotationPolicy(s, r.Policy, current)
	in := planInput(s, r.Policy, current)
	d.DrainPriorityMistake, d.RequeueAfter = waitForDrains(s, &in, current, drains)
	d.Refusals = refusals(s, &in, current, r.Policy)
	d.RequeueAfter = scope.Sooner(d.RequeueAfter, waitForLoss(s, r.Policy, current))
	if err := reserve(s, &d, &in, current, capacity); err != nil {
		return d, err
	}
	d.RequeueAfter = scope.Sooner(d.RequeueAfter, roomRetry(s, d))
	before := storedDecision(s, current)
	if mistake := assignVolume(s, r.Policy, current, &d); mistake != nil {
		return d, mistake
	}
	if len(in.Started) == 0 && keepsPlace(before, d, fallsBack(r, current)) {
		kept := keepPlaced(s, before, r.Policy, d.AnnotationPolicyLost)
		kept.RequeueAfter = d.RequeueAfter
		staysInAll(s, current, drains, kept)
		return kept, nil
	}
	if mistake := tooManyTargets(current, d); mistake != nil { // before the drains begin
		return d, mistake
	}
	return d, startDrains(s, in, d, current, drains)
}

// waitForLoss returns when the next cluster of an object may be assumed lost; 0: when something changes. An object that
// leaves a cluster also waits for the clusters that may send traffic to it.
func waitForLoss(s *scope.Scope, p *policy.EffectivePolicy, a *v1alpha1.Assignment) (after time.Duration) {
	states := targetStates(a)
	for name, state := range states {
		after = scope.Sooner(after, lossOf(s, p, name, state).after)
	}
	if !IsLeaving(a) {
		return after
	}
	for _, works := range s.Serving {
		for name := range works {
			after = scope.Sooner(after, lossOf(s, p, name, states[name]).after)
		}
	}
	return after
}

// keepsPlace reports whether an object that has lost its policy stays where it is, instead of
// following the next decision.
func keepsPlace(before, next Decision, fallsBack bool) bool {
	if len(before.Replicas) == 0 {
		return false
	}
	return next.AnnotationPolicyLost && takesFrom(before, next) || fallsBack && (next.Shortfall != "" || takesFrom(before, next))
}

// requiredDecision is the decision that follows from the object's dependents.
func requiredDecision(requiredIn map[string]bool) Decision {
	d := Decision{Replicas: map[string]int64{}}
	for name := range requiredIn {
		d.Replicas[name], d.Source = 0, sourceDependents
	}
	return d
}

// reserve plans within the capacity of the clusters, reserves it, and stores the plan in d. Of the two plans for an object
// that its autoscalers scale only the last one is reserved: between two reservations others would get its room.
func reserve(s *scope.Scope, d *Decision, in *policy.PlanInput, current *v1alpha1.Assignment, capacity *limits.Capacity) error {
	perReplica := limits.Usage{}
	if in.Replicas != nil {
		perReplica = limits.PerReplica(current.Spec.Decision.Requests)
	}
	return capacity.Reserve(s.Key, func(room limits.RoomFunc) (limits.Reservation, error) {
		limited := map[string]bool{}
		in.Capacity = func(name string) (*int64, string) {
			n, why := room(perReplica, name, in.Assigned[name], s.Clusters[name].Spec.Limits)
			n, why = withRefusal(s, d.Refusals, name, n, why)
			limited[name] = n != nil
			return n, why
		}
		plan, err := d.plan(*in)
		if err != nil {
			return limits.Reservation{}, err
		}
		if a := autoscaledOf(s, *in, d.Policy, current); a.isMoved(s, *d, current) { // what runs moves, not what the object requests
			d.Replicas = requiredDecision(s.RequiredIn).Replicas
			*in = a.planInput(*in, current)
			if plan, err = d.plan(*in); err != nil {
				return limits.Reservation{}, err
			}
			d.AutoscaledReplicas, d.AutoscaledIn = int32(a.total), a.counts
		}
		if plan.LacksRoom {
			d.AwaitedRoom = awaitedRoom(plan, *in, perReplica, limited)
		}
		reservation := limits.Reservation{PerReplica: perReplica, Replicas: plan.Targets}
		for _, t := range current.Spec.Targets { // replicas that leave use their capacity until they have left
			name := string(t.Cluster)
			reservation.Replicas[name] = max(reservation.Replicas[name], occupiedReplicas(s, t))
		}
		return reservation, nil
	})
}

// plan stores what the policy plans, and returns it. Each target has all replicas that are not divided.
func (d *Decision) plan(in policy.PlanInput) (policy.Plan, error) {
	plan, err := d.Policy.Plan(in)
	if err != nil {
		return policy.Plan{}, err
	}
	d.Divided, d.Shortfall, d.ShortfallReason, d.Note = plan.Divided, plan.Message, plan.Reason, plan.Note
	d.Source, d.Digest = d.Policy.Source, d.Policy.Digest()
	plan.Targets = maps.Clone(plan.Targets)
	for name, n := range plan.Targets {
		if !plan.Divided && in.Replicas != nil {
			n = wholeReplicas(in, name)
		}
		d.Replicas[name], plan.Targets[name] = n, n
	}
	return plan, nil
}

// wholeReplicas returns how many replicas a cluster gets that is to have the whole object. A cluster that is new in a
// move of what autoscalers request follows them as far as it has room.
func wholeReplicas(in policy.PlanInput, cluster string) int64 {
	if n, ok := in.Kept[cluster]; ok {
		return n
	}
	had, assigned := in.Assigned[cluster]
	if in.Kept == nil || !assigned { // the plan has asked for its room
		return *in.Replicas
	}
	if room, _ := in.Capacity(cluster); room != nil {
		return max(had, min(*in.Replicas, *room))
	}
	return *in.Replicas
}

// awaitedRoom returns the room that the object waits for after a plan. A cluster that takes nothing new is left out: the
// object is queued when that changes.
func awaitedRoom(plan policy.Plan, in policy.PlanInput, perReplica limits.Usage, limited map[string]bool) limits.AwaitedRoom {
	room := limits.AwaitedRoom{PerReplica: perReplica, Replicas: 1}
	if !plan.Divided && in.Replicas != nil {
		room.Replicas = *in.Replicas
	}
	for _, c := range in.Clusters {
		if limited[c.Name] && c.Reachability == policy.Reachable && !c.IsDraining() && !c.Deleting && !c.Spec.Unschedulable {
			room.Clusters = append(room.Clusters, c.Name)
		}
	}
	return room
}

// withRefusal lowers a cluster's capacity to the replicas that it runs of an object that it has refused.
func withRefusal(s *scope.Scope, all []v1alpha1.Refusal, cluster string, capacity *int64, why string) (replicas *int64, limit string) {
	i := slices.IndexFunc(all, func(r v1alpha1.Refusal) bool { return string(r.Cluster) == cluster })
	if i < 0 || !s.Now.Before(all[i].RetryTime.Time) {
		return capacity, why
	}
	if n := int64(all[i].Replicas); capacity == nil || n < *capacity {
		cause := "it did not run more"
		if refused := s.Reports[cluster].Refused; refused != nil {
			cause = fmt.Sprintf("it does not run more: %s: %s", refused.Reason, refused.Message)
		}
		return &n, fmt.Sprintf("%s; it gets no more before %s", cause, all[i].RetryTime.UTC().Format(time.RFC3339))
	}
	return capacity, why
}

// planInput returns what the plan depends on beside the policy.
func planInput(s *scope.Scope, p *policy.EffectivePolicy, current *v1alpha1.Assignment) policy.PlanInput {
	in := policy.PlanInput{
		Assigned: map[string]int64{}, Unconfirmed: map[string]bool{}, BeingRemoved: map[string]bool{},
		Leaving: map[string]bool{}, Returned: map[string]bool{}, Running: map[string]int64{},
		PolicyUnchanged: isPolicyUnchanged(current, p) && !isRebalanced(s, current), VolumeClaims: claimsThatStay(s, current),
	}
	in.VolumeRefusal = func(from, to string) string { return volumeRefusal(s, from, to) }
	if n, ok := replicasOf(s.Key, s.Object); ok {
		in.Replicas = new(int64(n))
	}
	returning := map[string]int64{} // what stays if an order to remove is taken back
	for _, t := range current.Spec.Targets {
		name := string(t.Cluster)
		switch c := s.Clusters[name]; plannedState(s, t) {
		case v1alpha1.TargetPending:
			if c != nil && clusters.ReachabilityOf(c) == policy.Reachable { // nothing was sent yet
				in.Assigned[name] = confirmedReplicas(s, t)
			}
		case v1alpha1.TargetActive:
			in.Unconfirmed[name] = !s.Reports[name].Applied
			in.Assigned[name], in.Running[name] = confirmedReplicas(s, t), runningReplicas(s, p, name)
		case v1alpha1.TargetDraining, v1alpha1.TargetLost:
			in.Assigned[name], in.Leaving[name] = deref(t.RequestedReplicas), isLeaving(c, t)
			in.Returned[name] = t.Returned || t.State == v1alpha1.TargetLost && c != nil && clusters.IsReachable(c)
		case v1alpha1.TargetRemoving:
			if w := s.Works[name]; w != nil && !scope.IsRemoved(w) {
				n, _ := scope.RequestedReplicas(w)
				returning[name] = int64(n)
			}
		}
	}
	if len(in.Assigned) == 0 || p.Spec.Replicas.Mode != v1alpha1.ReplicasSingle { // of Single only one cluster is to have it
		maps.Copy(in.Assigned, returning)
		for name := range returning {
			in.BeingRemoved[name] = true
		}
	}
	addStarted(&in, s, p, current)
	in.Autoscaled = autoscaledOf(s, in, p, current).active
	states := targetStates(current)
	for _, c := range s.Clusters {
		l := lossOf(s, p, c.Name, states[c.Name])
		in.Clusters = append(in.Clusters, policy.Cluster{
			Name: c.Name, Labels: c.Labels, Spec: &c.Spec, Reachability: clusters.ReachabilityOf(c),
			Deleting: c.DeletionTimestamp != nil, Lost: l.lost, DeclaredLost: l.declared, LossHeld: l.held,
		})
	}
	return in
}

// claimsThatStay returns the volume claims that keep the object in clusters.
func claimsThatStay(s *scope.Scope, current *v1alpha1.Assignment) map[string]string {
	claims := volumeClaims(s, current)
	for name := range s.RequiredIn { // there it stays with its dependent
		delete(claims, name)
	}
	if v := current.Spec.Volume; isInTransfer(v) { // the state of the volume keeps the data
		delete(claims, string(v.From))
		delete(claims, string(v.To))
	}
	return claims
}

// plannedState returns the state of a target for a plan: a lost cluster that had the order to remove still has it.
func plannedState(s *scope.Scope, t v1alpha1.Target) v1alpha1.TargetState {
	if w := s.Works[string(t.Cluster)]; t.State == v1alpha1.TargetLost && w != nil && w.Spec.Removal != nil {
		return v1alpha1.TargetRemoving
	}
	return t.State
}

// isLeaving reports whether a draining target began to lose the object by a drain, a taint or a loss. One that began
// while there was no Cluster takes the object back when the Cluster is created again: that is no order to remove it.
func isLeaving(c *v1alpha1.Cluster, t v1alpha1.Target) bool {
	return c != nil && t.LastTransitionTime != nil && t.LastTransitionTime.After(c.CreationTimestamp.Add(time.Second)) // it is cut to seconds
}

// isPolicyUnchanged reports whether the targets of an Assignment were planned from this policy.
// Recovered targets of a lost Assignment have no digest: they stay as they are.
func isPolicyUnchanged(a *v1alpha1.Assignment, p *policy.EffectivePolicy) bool {
	digest := a.Spec.Decision.Digest
	return digest == p.Digest() || digest == "" && a.UID == "" && len(a.Spec.Targets) > 0
}

// volumeClaims names, by cluster, a volume claim that the object has there: one that its Pod template
// names, or one that the agent reports for Pods that an operator makes for the object.
func volumeClaims(s *scope.Scope, a *v1alpha1.Assignment) map[string]string {
	names := render.VolumeClaimNames(s.Object)
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		names = []string{s.Key.Name}
	}
	found := map[string]string{}
	for _, t := range a.Spec.Targets {
		if state := plannedState(s, t); state != v1alpha1.TargetActive && state != v1alpha1.TargetDraining && state != v1alpha1.TargetLost {
			continue
		}
		cluster := string(t.Cluster)
		r := s.Reports[cluster]
		exists := r.RefusalReason == "" // also before the first report, which may precede the creation
		for _, uid := range r.UIDs {
			exists = exists || uid != ""
		}
		switch {
		case exists && len(names) > 0:
			found[cluster] = names[0]
		case len(r.VolumeClaims) > 0:
			found[cluster] = r.VolumeClaims[0]
		}
	}
	return found
}

// confirmedReplicas returns how many replicas a target counts with. Replicas that a cluster was
// asked for, and has not confirmed before it fell silent, go elsewhere.
func confirmedReplicas(s *scope.Scope, t v1alpha1.Target) int64 {
	name := string(t.Cluster)
	c, r := s.Clusters[name], s.Reports[name]
	if c == nil || clusters.ReachabilityOf(c) == policy.Reachable || r.Applied || t.Replicas == nil {
		return deref(t.Replicas)
	}
	return min(deref(t.Replicas), deref(r.Replicas))
}

// losesAnnotationPolicy reports whether the policy that said the rest for an annotated object is
// lost, or in a tie, while the annotation is unchanged.
func losesAnnotationPolicy(s *scope.Scope, p *policy.EffectivePolicy, a *v1alpha1.Assignment) bool {
	d := a.Spec.Decision
	return p.Source == v1alpha1.SourceAnnotation && p.UID == "" &&
		d.Source == v1alpha1.SourceAnnotation && d.AnnotatedPolicyUID != "" && d.AnnotationDigest == annotationDigest(s)
}

// fallsBack reports whether the Placement that placed the object no longer selects it, and a
// ClusterPlacement does: a user may be about to create the Placement again.
func fallsBack(r scope.Resolution, a *v1alpha1.Assignment) bool {
	return !r.Unselected && strings.HasPrefix(a.Spec.Decision.Source, "Placement ") && strings.HasPrefix(r.Policy.Source, "ClusterPlacement ")
}

// assignWithoutPolicy decides about an object that no policy and no annotation selects. Losing them
// is no order to remove it: it stays in its clusters. An object that only its dependents have
// placed follows them.
func assignWithoutPolicy(s *scope.Scope, r scope.Resolution, current *v1alpha1.Assignment, unknown *scope.UnknownDependents) Decision {
	before := storedDecision(s, current)
	var d Decision
	switch {
	case r.Unselected, !wasPlaced(before) && allRequired(before, s.RequiredIn):
		d = requiredDecision(s.RequiredIn)
	case !wasPlaced(before) && v1alpha1.IsVolumeClaim(s.Key.GroupKind): // a claim stays after its last dependent
		d = before
		addRequired(&d, s.RequiredIn)
	case wasPlaced(before):
		d = keepPlaced(s, before, nil, false)
	case unknown != nil:
		return Decision{Mistake: unknown.Mistake, RequeueAfter: unknown.RequeueAfter}
	default:
		d = requiredDecision(s.RequiredIn)
	}
	d.Mistake = tooManyTargets(current, d)
	return d
}

// keepPlaced keeps an object where a policy or an annotation has placed it before. Fallback is a
// policy of a lower rank that selects it now, nil for none. It, or the annotation alone if the
// annotation's policy is lost, would take the object from where it runs.
func keepPlaced(s *scope.Scope, before Decision, fallback *policy.EffectivePolicy, annotationPolicyLost bool) Decision {
	d := before
	where := strings.Join(slices.Sorted(maps.Keys(before.Replicas)), ", ")
	addRequired(&d, s.RequiredIn)
	d.AnnotationPolicyLost = annotationPolicyLost
	d.ShortfallReason = v1alpha1.ReasonNoPolicy
	switch {
	case annotationPolicyLost:
		d.Shortfall = fmt.Sprintf("the policy that completes its annotation no longer selects the object, and the annotation alone "+
			"would remove it from clusters where it runs: it stays in %s. Create a policy, or change the annotation", where)
	case fallback != nil:
		d.Shortfall = fmt.Sprintf("%s no longer selects the object, and %s would remove it from clusters where it runs: it stays in %s. "+
			"To move it, set the annotation %s", before.Source, fallback.Source, where, v1alpha1.ClustersAnnotation)
	default:
		d.Shortfall = "no policy and no annotation selects the object any more: it stays in " + where +
			". To remove it there, run kubectl patchbay remove"
	}
	return d
}

func addRequired(d *Decision, requiredIn map[string]bool) {
	for name := range requiredIn {
		if !d.includes(name) {
			d.Replicas[name] = 0
		}
	}
}

// tooManyTargets rejects a decision for which an Assignment has no room, together with the clusters
// that the object leaves.
func tooManyTargets(a *v1alpha1.Assignment, d Decision) *policy.Error {
	n := len(d.Replicas)
	for _, t := range a.Spec.Targets {
		if !d.includes(string(t.Cluster)) {
			n++
		}
	}
	if n <= v1alpha1.MaxTargets {
		return nil
	}
	return &policy.Error{Reason: v1alpha1.ReasonTooManyTargets, Object: d.Source, Field: "spec.clusters", Message: fmt.Sprintf(
		"%d clusters have the object or are to have it, and at most %d are supported: select fewer", n, v1alpha1.MaxTargets)}
}
