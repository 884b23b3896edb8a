// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// loss is whether others replace what a silent cluster has.
type loss struct {
	lost     bool
	declared bool          // by an admin, or others replace it already
	held     string        // why it is not assumed lost, although it has been silent for long enough
	after    time.Duration // when to decide again; 0: when something changes
}

// lossOf returns the loss of a cluster. State is that of the object's target there; empty: there is none. What others
// replace once is lost until the cluster reports, also for a new leader and without a policy.
func lossOf(s *scope.Scope, p *policy.EffectivePolicy, name string, state v1alpha1.TargetState) loss {
	c := s.Clusters[name]
	switch {
	case c != nil && clusters.IsReachable(c):
		return loss{}
	case state == v1alpha1.TargetLost, s.DeclaredLost[name]:
		return loss{lost: true, declared: true}
	}
	clock, silent := s.LossClocks[name]
	if !silent || p == nil || p.Spec.Offline.AssumeLostAfter == nil {
		return loss{}
	}
	untilLost, untilHeld := clock.Remaining(s.Now, p.Spec.Offline.AssumeLostAfter.Duration)
	switch {
	case s.Silence.IsTooMany() && untilHeld <= 0:
		return loss{held: s.Silence.String()}
	case s.Silence.IsTooMany():
		return loss{after: untilHeld}
	case untilLost > 0:
		return loss{after: untilLost}
	}
	return loss{lost: true}
}

// targetStates returns the state of each target by cluster.
func targetStates(a *v1alpha1.Assignment) map[string]v1alpha1.TargetState {
	states := make(map[string]v1alpha1.TargetState, len(a.Spec.Targets))
	for _, t := range a.Spec.Targets {
		states[string(t.Cluster)] = t.State
	}
	return states
}
