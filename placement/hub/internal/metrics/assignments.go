// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// assignmentState is the state of an Assignment.
type assignmentState struct{ state, reason string }

// labelValues implements state.
func (s assignmentState) labelValues() []string { return []string{s.state, s.reason} }

// assignmentMetrics are the metrics of Assignments. Only one goroutine changes them.
type assignmentMetrics struct {
	counts *stateCounts[assignmentState]
	moves  *prometheus.HistogramVec
}

// registerAssignments registers the metrics of Assignments.
func registerAssignments(r prometheus.Registerer) *assignmentMetrics {
	m := &assignmentMetrics{
		counts: newStateCounts[assignmentState]("patchbay_objects",
			"Objects with an Assignment by state, and by the reason of the condition that the state comes from: placed (as the policy requests), "+
				"moving (a cluster is to lose it to another one), not_placed (condition Placed is False), not_rendered (Rendered is False: a Work has an earlier object), "+
				"move_blocked (MoveBlocked is True) and unknown (no status yet). The reason is empty for placed, moving and unknown.",
			"state", "reason"),
		moves: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "patchbay_moves_seconds",
			Help: "Time from a decision that moves an object to other clusters until it has left the last of those that it leaves. " +
				"Removals from all clusters are not included.",
			Buckets: []float64{5, 15, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600},
		}, nil),
	}
	r.MustRegister(m.counts, m.moves)
	return m
}

// observe counts an Assignment that was created, changed or deleted.
func (m *assignmentMetrics) observe(old, now *v1alpha1.Assignment, at time.Time) {
	m.counts.move(stateOf(old, assignmentStateOf), stateOf(now, assignmentStateOf))
	if old == nil || now == nil || !isMoving(old) || isMoving(now) || len(now.Spec.Targets) == 0 {
		return
	}
	// The decision that the move has carried out. Its clock may be another leader's.
	if since := now.Spec.Decision.LastChangeTime; since != nil && old.Spec.Decision.Number == now.Spec.Decision.Number {
		m.moves.WithLabelValues().Observe(max(0, at.Sub(since.Time).Seconds()))
	}
}

// isMoving reports whether an object leaves clusters for others.
func isMoving(a *v1alpha1.Assignment) bool {
	leaves, stays := false, false
	for _, t := range a.Spec.Targets {
		if t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving {
			leaves = true
		} else {
			stays = true
		}
	}
	return leaves && stays
}

// assignmentStateOf returns the state of an Assignment. The hub alone writes its conditions.
func assignmentStateOf(a *v1alpha1.Assignment) assignmentState {
	for _, problem := range []struct {
		condition string
		status    metav1.ConditionStatus
		state     string
	}{
		{v1alpha1.ConditionPlaced, metav1.ConditionFalse, "not_placed"},
		{v1alpha1.ConditionRendered, metav1.ConditionFalse, "not_rendered"},
		{v1alpha1.ConditionMoveBlocked, metav1.ConditionTrue, "move_blocked"},
	} {
		if c := meta.FindStatusCondition(a.Status.Conditions, problem.condition); c != nil && c.Status == problem.status {
			return assignmentState{problem.state, c.Reason}
		}
	}
	if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionPlaced) {
		return assignmentState{state: "unknown"}
	}
	if isMoving(a) {
		return assignmentState{state: "moving"}
	}
	return assignmentState{state: "placed"}
}
