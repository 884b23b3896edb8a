// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"

	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// autoscaled are the replicas of an object that autoscalers, or other field managers, request in its clusters.
//
// At rest they are the clusters' own business, and the hub divides spec.replicas of the object. When the object
// leaves a cluster, that number says nothing about what runs there. So the targets are in units of what runs
// from then until the move has ended.
type autoscaled struct {
	// counts are the most replicas that an autoscaler, or the hub, has requested of each cluster in this move. If each
	// cluster has the whole object, those that are new in the move have none.
	counts map[string]int64
	// live are the replicas that an autoscaler requests now of each cluster that has one.
	live map[string]int64
	// active are the clusters of live that keep the object, and have replicas.
	active map[string]bool
	// total is how many are wanted; 0: no autoscaler has requested any.
	total int64
	// whole reports that each cluster has the whole object.
	whole bool
	// started reports that the stored targets are those of such a move.
	started bool
}

// autoscaledOf returns what autoscalers request. It is empty for an object that does not yield its replicas, or that
// has none by a user's request.
func autoscaledOf(s *scope.Scope, in policy.PlanInput, p *policy.EffectivePolicy, current *v1alpha1.Assignment) autoscaled {
	a := autoscaled{counts: map[string]int64{}, live: map[string]int64{}, active: map[string]bool{}}
	if !p.Spec.Apply.YieldsReplicas() || in.Replicas == nil || *in.Replicas == 0 {
		return a
	}
	a.started = current.Spec.Decision.AutoscaledReplicas > 0
	var names []string
	var targets []migration.AutoscaledTarget
	for _, t := range current.Spec.Targets {
		returned := in.Returned[string(t.Cluster)]
		if t.State != v1alpha1.TargetActive && t.State != v1alpha1.TargetDraining && !returned {
			continue
		}
		live := s.Reports[string(t.Cluster)].AutoscaledReplicas
		if live != nil {
			a.live[string(t.Cluster)] = deref(live)
			a.active[string(t.Cluster)] = t.State == v1alpha1.TargetActive && *live > 0
		}
		names = append(names, string(t.Cluster))
		targets = append(targets, migration.AutoscaledTarget{
			Requested: ptr.Deref(requestedOf(&t), 0), Most: ptr.Deref(t.AutoscaledReplicas, 0), Live: live, Replaced: returned,
		})
	}
	if len(a.live) == 0 && !a.started {
		return a
	}
	divided := p.Spec.Replicas.Mode == v1alpha1.ReplicasDivide
	total, most := migration.FollowAutoscalers(current.Spec.Decision.AutoscaledReplicas, divided, targets)
	a.total = int64(total)
	for i, name := range names {
		a.counts[name] = int64(most[i])
	}
	if a.whole = !divided; a.whole && a.started { // the others are new in this move
		for _, t := range current.Spec.Targets {
			if !keepsOwn(&t) {
				delete(a.counts, string(t.Cluster))
			}
		}
	}
	return a
}

// keepsOwn reports whether a cluster has the whole object since before a move of what autoscalers request. Its
// autoscaler is none of the move's business.
func keepsOwn(t *v1alpha1.Target) bool {
	return t.RequestedReplicas == nil && t.AutoscaledReplicas != nil
}

// requestedOf returns how many replicas the hub requests of a target; nil for a kind without replicas.
func requestedOf(t *v1alpha1.Target) *int32 {
	if t.RequestedReplicas != nil {
		return t.RequestedReplicas
	}
	return t.Replicas
}

// isMoved reports whether what runs is to move by a plan for what the object requests: the plan leaves a cluster in
// which an autoscaler has replicas, or such a move has not ended.
func (a autoscaled) isMoved(s *scope.Scope, d Decision, current *v1alpha1.Assignment) bool {
	if a.total == 0 {
		return false
	}
	for name, n := range a.live {
		if stays := d.Replicas[name] > 0 || !d.Divided && d.includes(name); n > 0 && !stays {
			return true
		}
	}
	return a.started && !isAutoscaledMoveOver(s, current)
}

// isAutoscaledMoveOver reports whether nothing moves any more in a move of what autoscalers request. It does not wait
// for what silent clusters have lost: their replicas run elsewhere, and the autoscalers there need their own bounds.
func isAutoscaledMoveOver(s *scope.Scope, current *v1alpha1.Assignment) bool {
	for _, t := range current.Spec.Targets {
		name := string(t.Cluster)
		if c := s.Clusters[name]; c == nil || !clusters.IsReachable(c) {
			if t.State == v1alpha1.TargetLost || t.State == v1alpha1.TargetRemoving {
				continue
			}
		}
		n := deref(t.Replicas)
		moves := t.State != v1alpha1.TargetActive || t.RequestedReplicas != nil && deref(t.RequestedReplicas) != n
		// An agent of an earlier version owns the replicas that it was sent, and would take them back.
		handedOver := n == 0 || keepsOwn(&t) || s.Reports[name].Applied && s.Reports[name].AutoscaledReplicas != nil
		if moves || !handedOver {
			return false
		}
	}
	return true
}

// planInput returns the input of a plan for what runs.
func (a autoscaled) planInput(in policy.PlanInput, current *v1alpha1.Assignment) policy.PlanInput {
	in.Replicas, in.Autoscaled = new(a.total), nil
	if a.whole {
		in.Kept = a.counts
	}
	if a.started {
		return in // the targets are those of such a plan
	}
	in.Assigned = maps.Clone(in.Assigned)
	for _, t := range current.Spec.Targets {
		if n, ok := a.counts[string(t.Cluster)]; ok && t.State == v1alpha1.TargetActive {
			in.Assigned[string(t.Cluster)] = n
		}
	}
	return in
}
