// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/apportion"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// Migration is one step from the present targets to those of a decision.
type Migration struct {
	// Targets after the step.
	Targets []v1alpha1.Target
	// MoveBlocked is the condition of that type.
	MoveBlocked metav1.Condition
	// RolledBack is the Event about replicas that were given back to clusters; nil when none were.
	RolledBack *Warning
	// AwaitedReports are the times up to which clusters must have reported all changes before the next step, if
	// nothing is reported. Each cluster may allow a step alone.
	AwaitedReports map[string]time.Time
	// RequeueAfter is when to take the next step though nothing is reported; 0: when something is.
	RequeueAfter time.Duration
}

// Migrate computes the next step of the targets of an Assignment, which records the decision. It counts a roll-back
// in the Assignment.
func Migrate(s *scope.Scope, a *v1alpha1.Assignment, d Decision) Migration {
	if m, moves := transferVolume(s, a, d); moves {
		return m
	}
	targets := presentTargets(a, d)
	in := migrationInput(s, d)
	in.Stable = stability.Window(in.Stable, a.Spec.Decision.Rollbacks)
	if changed := a.Spec.Decision.LastChangeTime; changed != nil {
		in.DesiredSince = changed.Time
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		t := migrationTarget(s, targets[name], d, in.Stable)
		setAutoscaled(&t, s, targets[name], d, a.Spec.Dependencies)
		in.Targets = append(in.Targets, t)
	}
	awaitsVolumes := awaitVolumes(s, &in)
	out := migration.Step(in)
	m := Migration{RequeueAfter: out.RequeueAfter}
	if awaitsVolumes {
		m.RequeueAfter = scope.Sooner(m.RequeueAfter, volumeRecheck)
	}
	if out.RolledBack > 0 {
		a.Spec.Decision.Rollbacks++
		m.RolledBack = rolledBack(in, out)
	}
	lastStep := in.DesiredSince
	for _, transition := range out.Transitions {
		if transition.State == migration.None {
			continue
		}
		m.Targets = append(m.Targets, nextTarget(s, targets[transition.Cluster], d, transition))
		if transition.Since.After(lastStep) {
			lastStep = transition.Since
		}
	}
	if !out.Done {
		m.AwaitedReports = awaitedReports(s, out, in.Stable, lastStep)
	}
	var retry time.Duration
	out.Blocked.Message += undatedCause(s, out.Blocked) + autoscalerCause(s, d, m.Targets, out.Blocked.Cluster)
	after := blockedAfter(s, out.Blocked.Reason, in.Stable)
	m.MoveBlocked, retry = moveBlockedCondition(out.Blocked, out.Done, s.Now.Sub(lastStep), after)
	if left := after - s.Now.Sub(s.ObservedSince); left > 0 && needsReports(out.Blocked) && m.MoveBlocked.Status == metav1.ConditionTrue {
		m.MoveBlocked, retry = keptMoveBlocked(s.Assignment), left
	}
	m.RequeueAfter = scope.Sooner(m.RequeueAfter, retry)
	return m
}

// presentTargets returns, by cluster, the stored targets, and empty ones for the clusters that the decision adds.
func presentTargets(a *v1alpha1.Assignment, d Decision) map[string]v1alpha1.Target {
	targets := map[string]v1alpha1.Target{}
	for name := range d.Replicas {
		targets[name] = v1alpha1.Target{Cluster: v1alpha1.ClusterName(name)}
	}
	for _, t := range a.Spec.Targets {
		targets[string(t.Cluster)] = t
	}
	return targets
}

// nextTarget returns a target after a transition. Stored is the target before it.
func nextTarget(s *scope.Scope, stored v1alpha1.Target, d Decision, transition migration.Transition) v1alpha1.Target {
	t := v1alpha1.Target{
		Cluster: stored.Cluster, State: v1alpha1.TargetState(transition.State),
		LastTransitionTime: &metav1.MicroTime{Time: transition.Since}, Returned: transition.Returned,
		AutoscaledReplicas: stored.AutoscaledReplicas,
	}
	if _, hasReplicas := replicasOf(s.Key, s.Object); hasReplicas {
		t.Replicas = new(int32(d.Replicas[transition.Cluster]))
	}
	if d.Divided {
		t.RequestedReplicas = new(transition.Requested)
	}
	if transition.Fallback > 0 {
		t.FallbackReplicas = new(transition.Fallback)
	}
	if transition.Withdraw {
		if t.TrafficWithdrawnTime = stored.TrafficWithdrawnTime; t.TrafficWithdrawnTime == nil {
			t.TrafficWithdrawnTime = &metav1.MicroTime{Time: s.Now}
		}
	}
	return t
}

// undatedCause says that a move waits for a cluster because its reports have no date; "" if they have.
func undatedCause(s *scope.Scope, blocked migration.Blocked) string {
	c, o := s.Clusters[blocked.Cluster], s.Observed[blocked.Cluster]
	if c == nil || !clusters.IsReachable(c) || len(o.Reports) == 0 || !o.Until.IsZero() {
		return ""
	}
	if !needsReports(blocked) {
		return ""
	}
	return fmt.Sprintf("; the agent of %s has not said for a while that its reports are complete: its log says whether it can read the cluster, and reach the hub", blocked.Cluster)
}

// autoscalerCause says that a move waits for a cluster because another field manager requests fewer replicas there
// than the hub; "" if none does.
func autoscalerCause(s *scope.Scope, d Decision, targets []v1alpha1.Target, cluster string) string {
	t, ok := limits.TargetOf(targets, cluster)
	live := s.Reports[cluster].AutoscaledReplicas
	requested := deref(requestedOf(&t))
	if !ok || t.State != v1alpha1.TargetActive || d.AutoscaledReplicas == 0 || live == nil || deref(live) >= requested || !s.Reports[cluster].Applied {
		return ""
	}
	return fmt.Sprintf("; the autoscaler, or another owner of spec.replicas, keeps %d in %s, and %d are requested there: "+
		"raise its minimum, and its maximum if that is less", *live, cluster, requested)
}

// needsReports reports whether a move waits for what a cluster reports.
func needsReports(blocked migration.Blocked) bool {
	return blocked.Reason == migration.NotAvailable || blocked.Reason == migration.NotReady || blocked.Reason == migration.NotReported
}

// keptMoveBlocked returns the condition that the last leader wrote: a new one does not know yet what the reports say.
func keptMoveBlocked(a *v1alpha1.Assignment) metav1.Condition {
	if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionMoveBlocked); c != nil {
		return newCondition(c.Type, c.Status == metav1.ConditionTrue, c.Reason, c.Message)
	}
	return newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonProgressing, "")
}

// rolledBack returns the Event about replicas that were given back to clusters.
func rolledBack(in migration.Input, out migration.Output) *Warning {
	var to, from []string
	for i, transition := range out.Transitions {
		before := in.Targets[i]
		switch more := transition.Requested - before.Requested; {
		case more > 0 && transition.Requested > before.Desired:
			to = append(to, fmt.Sprintf("%d to %s", more, before.Cluster))
		case before.Wanted && before.Requested > 0:
			from = append(from, before.Cluster)
		}
	}
	return &Warning{Reason: v1alpha1.ReasonRolledBack, Message: fmt.Sprintf(
		"too few replicas are available in %s: gave back %s. Reports must say for %s from now on that replicas are available",
		strings.Join(from, ", "), strings.Join(to, ", "), stability.Window(in.Stable, 1))}
}

// awaitedReports returns the times up to which clusters must have reported all changes before their reports say more
// than now, by the last report or the last step.
func awaitedReports(s *scope.Scope, out migration.Output, stable time.Duration, lastStep time.Time) map[string]time.Time {
	awaited := map[string]time.Time{}
	for _, transition := range out.Transitions {
		if transition.State != migration.Active && transition.State != migration.Draining {
			continue
		}
		o := s.Observed[transition.Cluster]
		if len(o.Reports) == 0 {
			continue // the report itself is awaited
		}
		if o.Until.IsZero() {
			awaited[transition.Cluster] = s.Now
			continue
		}
		for _, at := range []time.Time{
			lastStep.Add(time.Microsecond), transition.Since.Add(stable), o.Reports[len(o.Reports)-1].At.Add(stable),
		} {
			if next, ok := awaited[transition.Cluster]; at.After(o.Until) && (!ok || at.Before(next)) {
				awaited[transition.Cluster] = at
			}
		}
	}
	return awaited
}

// migrationInput returns how the policy moves the object; the targets are not in it yet.
func migrationInput(s *scope.Scope, d Decision) migration.Input {
	in := migration.Input{Divided: d.Divided, Now: s.Now, Stable: s.DefaultStable}
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
	in.BreakBeforeMake = move.Mode == v1alpha1.BreakBeforeMake || movesExclusiveVolume(s, d)
	in.ProceedAtDeadline = move.OnDeadline == v1alpha1.DeadlineProceed
	if move.Stable != nil {
		in.Stable = move.Stable.Duration
	}
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

// movesExclusiveVolume reports whether the object uses a volume that only one cluster may attach, and its policy
// transfers volumes: it is removed before it starts elsewhere.
func movesExclusiveVolume(s *scope.Scope, d Decision) bool {
	if d.Policy == nil || d.Policy.Spec.Volumes != v1alpha1.VolumesTransfer || v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return false
	}
	for _, claim := range s.Claims {
		if claim.Transfer != nil && !claim.Transfer.Source.IsShared() {
			return true
		}
		for _, report := range claim.Volumes {
			if report.Source != nil && !report.Source.IsShared() {
				return true
			}
		}
	}
	return false
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
	return int32(min(max(n, 0), apportion.MaxTotal))
}

// migrationTarget returns what a step depends on of one cluster. The states of package migration and
// of the API have the same names.
func migrationTarget(s *scope.Scope, t v1alpha1.Target, d Decision, stable time.Duration) migration.Target {
	name := string(t.Cluster)
	c := s.Clusters[name]
	desired, isDesired := d.Replicas[name]
	m := migration.Target{
		Cluster: name, Wanted: isDesired, State: migration.State(t.State), Requested: int32(deref(t.RequestedReplicas)),
		Reachable: c != nil && clusters.IsReachable(c), NotInInventory: c == nil,
		Fallback: int32(deref(t.FallbackReplicas)), AtMost: math.MaxInt32, Returned: t.Returned,
	}
	l := lossOf(s, d.Policy, name, t.State)
	m.Lost = l.declared || l.lost && d.Policy.Replaces(&policy.Cluster{Lost: true})
	m.Proceed, _ = drainProceeds(c, s.Now)
	if d.Divided {
		m.Desired = int32(desired)
		if t.RequestedReplicas == nil && t.State == v1alpha1.TargetActive { // it had all replicas so far
			m.Requested = int32(deref(t.Replicas))
		}
	}
	if t.LastTransitionTime != nil {
		m.Since = t.LastTransitionTime.Time
	}
	e := exposureOf(s, d, name, t.TrafficWithdrawnTime)
	m.Serves, m.TrafficIn, m.TrafficCause, m.Withdrawn = e.serves, e.in, e.cause, t.TrafficWithdrawnTime != nil
	m.Replacements, m.ReplacementsIn = e.replacements, e.replacementsIn
	w := s.Works[name]
	if w == nil {
		m.Removed = s.GoneWorks[name] && (t.State == v1alpha1.TargetLost || !mayRunUnseen(s, name, d))
		return m
	}
	if n, ok := scope.RequestedReplicas(w); ok && d.Divided && t.State == v1alpha1.TargetRemoving {
		m.Requested = n // it keeps them if the order is withdrawn
	}
	r, o := s.Reports[name], s.Observed[name]
	sample := o.Reports.Sample(o.Until, stable)
	m.Ready, m.StableReady, m.Available, m.AtMost, m.Until, m.Total = r.Ready, sample.Ready, sample.Available, sample.AtMost, sample.Until, r.Counts.Total
	// A hub that was killed may have stored how many replicas it requests, and not have sent that.
	m.ReportCurrent = r.Current && (t.RequestedReplicas == nil || requests(w, *t.RequestedReplicas))
	if r.Gone { // the agent never makes it again there
		m.ReportCurrent, m.Available, m.AtMost, m.Total = true, 0, 0, 0
	}
	m.Removed = t.State == v1alpha1.TargetRemoving && scope.IsRemoved(w)
	return m
}

// setAutoscaled completes a target of a move that counts what autoscalers request.
func setAutoscaled(m *migration.Target, s *scope.Scope, t v1alpha1.Target, d Decision, dependencies []v1alpha1.DependencyReference) {
	if d.AutoscaledReplicas == 0 {
		return
	}
	name := string(t.Cluster)
	w, live := s.Works[name], s.Reports[name].AutoscaledReplicas
	if d.Divided {
		m.AllAtOnce = m.Desired == 0 && live != nil && !hasAutoscaler(dependencies)
		return
	}
	wanted := d.Replicas[name]
	m.ReportCurrent = m.ReportCurrent && (!m.Wanted || w != nil && deref(w.Spec.MinReplicas) >= wanted)
	m.Ready = m.Ready && (!m.Wanted || live == nil || deref(live) >= wanted)
}

// hasAutoscaler reports whether an object's dependencies have an autoscaler. The hub sets its bounds in each cluster.
func hasAutoscaler(dependencies []v1alpha1.DependencyReference) bool {
	for _, d := range dependencies {
		if d.Group == "autoscaling" {
			return true
		}
	}
	return false
}

// mayRunUnseen reports whether a cluster may run an object whose Work is gone with the Cluster and its
// namespace. That is no proof of a removal for an object that must run in one cluster at a time, unless a user
// has ordered its removal everywhere.
func mayRunUnseen(s *scope.Scope, cluster string, d Decision) bool {
	once := policy.BreaksBeforeMake(s.Key.GroupKind)
	if p := d.Policy; p != nil {
		once = p.Spec.Move.Mode == v1alpha1.BreakBeforeMake || p.Spec.Replicas.Mode == v1alpha1.ReplicasSingle
	}
	return once && s.WasSent(cluster) && len(d.Replicas) > 0
}

// requests reports whether a Work's manifest requests this many replicas.
func requests(w *v1alpha1.Work, replicas int32) bool {
	raw, err := storedManifest(w, &replicas)
	return err == nil && len(w.Spec.Manifests) > 0 && equalJSON(raw, w.Spec.Manifests[0].Object.Raw)
}

// blockedAfter is how long a move waits before the condition reports it: a healthy move waits for Pods to start and
// to stop, and for reports that last.
func blockedAfter(s *scope.Scope, reason migration.BlockedReason, stable time.Duration) time.Duration {
	after := max(minBlockedAfter, 2*stable+stability.HeartbeatInterval)
	if s.Object != nil && (reason == migration.MustStop || reason == migration.StillRunning) {
		after += render.GracePeriod(s.Object)
	}
	return after
}

const minBlockedAfter = 30 * time.Second

// moveBlockedCondition reports what a move waits for, if it has made no step for a while. Retry is
// when to report it, if that is not yet.
func moveBlockedCondition(blocked migration.Blocked, done bool, waited, after time.Duration) (c metav1.Condition, retry time.Duration) {
	switch {
	case blocked.Reason != "" && waited >= after:
		return newCondition(v1alpha1.ConditionMoveBlocked, true, v1alpha1.ReasonStalled, blocked.Message), 0
	case blocked.Reason != "":
		retry = after - waited
	}
	if done {
		return newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonAsExpected, ""), retry
	}
	return newCondition(v1alpha1.ConditionMoveBlocked, false, v1alpha1.ReasonProgressing, ""), retry
}
