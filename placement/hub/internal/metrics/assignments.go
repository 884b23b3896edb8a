// SPDX-License-Identifier: Apache-2.0

package metrics

import (
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
}

// registerAssignments registers the metrics of Assignments.
func registerAssignments(r prometheus.Registerer) *assignmentMetrics {
	m := &assignmentMetrics{counts: newStateCounts[assignmentState]("patchbay_hub_assignments",
		"Assignments by state, and by the reason of the condition that the state comes from: placed (as the policy requests), "+
			"not_placed (condition Placed is False), not_rendered (Rendered is False: a Work has an earlier object), "+
			"move_blocked (MoveBlocked is True) and unknown (no status yet). The reason is empty for placed and unknown.",
		"state", "reason")}
	r.MustRegister(m.counts)
	return m
}

// observe counts an Assignment that was created, changed or deleted.
func (m *assignmentMetrics) observe(old, now *v1alpha1.Assignment, _ bool) {
	m.counts.move(stateOf(old, assignmentStateOf), stateOf(now, assignmentStateOf))
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
	return assignmentState{state: "placed"}
}
