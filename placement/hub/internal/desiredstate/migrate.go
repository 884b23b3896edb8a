// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
)

// maxReplicas is the most that package apportion takes.
const maxReplicas = 1_000_000

// Migration is one step from the present targets to those of a decision.
type Migration struct {
	// Targets after the step.
	Targets []v1alpha1.Target
	// MoveBlocked is the condition of that type.
	MoveBlocked metav1.Condition
	// RequeueAfter is when to take the next step though nothing is reported; 0: when something is.
	RequeueAfter time.Duration
}

// Migrate computes the next step of the targets of an Assignment, which records the decision.
func Migrate(s *scope.Scope, a *v1alpha1.Assignment, d Decision) Migration {
	targets := map[string]v1alpha1.Target{}
	for _, t := range a.Spec.Targets {
		targets[string(t.Cluster)] = t
	}
	for name := range d.Replicas {
		if _, ok := targets[name]; !ok {
			targets[name] = v1alpha1.Target{Cluster: v1alpha1.ClusterName(name)}
		}
	}
	in := migrationInput(s, d)
	if changed := a.Spec.Decision.LastChangeTime; changed != nil {
		in.DesiredSince = changed.Time
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		in.Targets = append(in.Targets, migrationTarget(s, targets[name], d))
	}
	out := migration.Step(in)
	m := Migration{RequeueAfter: out.RequeueAfter}
	_, hasReplicas := replicasOf(s.Key, s.Object)
	lastStep := in.DesiredSince
	for _, transition := range out.Transitions {
		if transition.State == migration.None {
			continue
		}
		t := v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(transition.Cluster), State: v1alpha1.TargetState(transition.State),
			LastTransitionTime: &metav1.MicroTime{Time: transition.Since},
		}
		if hasReplicas {
			t.Replicas = new(int32(d.Replicas[transition.Cluster]))
		}
		if d.Divided {
			t.RequestedReplicas = new(transition.Requested)
		}
		m.Targets = append(m.Targets, t)
		if transition.Since.After(lastStep) {
			lastStep = transition.Since
		}
	}
	var retry time.Duration
	m.MoveBlocked, retry = moveBlockedCondition(out.Blocked.Message, out.Done, lastStep, s.Now)
	m.RequeueAfter = scope.Sooner(m.RequeueAfter, retry)
	return m
}

// migrationInput returns how the policy moves the object; the targets are not in it yet.
func migrationInput(s *scope.Scope, d Decision) migration.Input {
	in := migration.Input{Divided: d.Divided, Now: s.Now}
	var total int32
	for _, n := range d.Replicas {
		total += int32(n)
	}
	in.MaxSurge = total
	if d.Policy == nil {
		in.NoPolicy = true
		return in
	}
	move := d.Policy.Spec.Move
	in.BreakBeforeMake = move.Mode == v1alpha1.BreakBeforeMake
	in.ProceedAtDeadline = move.OnDeadline == v1alpha1.DeadlineProceed
	if move.Settle != nil {
		in.Settle = move.Settle.Duration
	}
	if move.Deadline != nil {
		in.Deadline = move.Deadline.Duration
	}
	in.MaxSurge = scaledValue(move.Surge, total, total, true)
	in.MaxUnavailable = scaledValue(move.Unavailable, total, 0, false)
	return in
}

// scaledValue resolves a number or a percentage of total.
func scaledValue(value *intstr.IntOrString, total, defaultValue int32, roundUp bool) int32 {
	if value == nil {
		return defaultValue
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(total), roundUp)
	if err != nil { // the schema rejects such a value
		return defaultValue
	}
	return int32(min(max(n, 0), maxReplicas))
}

// migrationTarget returns what a step depends on of one cluster. The states of package migration and
// of the API have the same names.
func migrationTarget(s *scope.Scope, t v1alpha1.Target, d Decision) migration.Target {
	name := string(t.Cluster)
	c := s.Clusters[name]
	desired, isDesired := d.Replicas[name]
	m := migration.Target{
		Cluster: name, Wanted: isDesired, State: migration.State(t.State), Requested: int32(deref(t.RequestedReplicas)),
		Reachable: c != nil && clusters.IsReachable(c), NotInInventory: c == nil,
	}
	if d.Divided {
		m.Desired = int32(desired)
		if t.RequestedReplicas == nil && t.State == v1alpha1.TargetActive { // it had all replicas so far
			m.Requested = int32(deref(t.Replicas))
		}
	}
	if t.LastTransitionTime != nil {
		m.Since = t.LastTransitionTime.Time
	}
	w := s.Works[name]
	if w == nil {
		m.Removed = s.GoneWorks[name]
		return m
	}
	r := s.Reports[name]
	m.Ready, m.Available, m.Total = r.Ready, r.Counts.Available, r.Counts.Total
	// A hub that was killed may have stored how many replicas it requests, and not have sent that.
	m.ReportCurrent = r.Current && (t.RequestedReplicas == nil || requests(w, *t.RequestedReplicas))
	if r.Gone { // the agent never makes it again there
		m.ReportCurrent, m.Available, m.Total = true, 0, 0
	}
	m.Removed = t.State == v1alpha1.TargetRemoving && scope.IsRemoved(w)
	return m
}

// requests reports whether a Work's manifest requests this many replicas.
func requests(w *v1alpha1.Work, replicas int32) bool {
	raw, err := storedManifest(w, &replicas)
	return err == nil && len(w.Spec.Manifests) > 0 && equalJSON(raw, w.Spec.Manifests[0].Object.Raw)
}

// blockedAfter is how long a move waits before the condition reports it: a healthy move waits for
// Pods to start.
const blockedAfter = 30 * time.Second

// moveBlockedCondition reports what a move waits for, if it has made no step for a while. Retry is
// when to report it, if that is not yet.
func moveBlockedCondition(blocked string, done bool, lastStep, now time.Time) (c metav1.Condition, retry time.Duration) {
	left := blockedAfter - now.Sub(lastStep)
	switch {
	case blocked != "" && left <= 0:
		return newCondition(v1alpha1.ConditionMoveBlocked, true, v1alpha1.ReasonStalled, blocked), 0
	case blocked != "":
		retry = left
	}
	if done {
		return newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonAsExpected, ""), retry
	}
	return newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonProgressing, ""), retry
}
