// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// transferVolume takes the next step of the volume of a claim, and reports whether it is on its way. A claim then moves
// by the state of its volume, not by that of a migration.
func transferVolume(s *scope.Scope, a *v1alpha1.Assignment, d Decision) (Migration, bool) {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) || s.Object == nil {
		return Migration{}, false
	}
	if v := a.Spec.Volume; v != nil && v.ClaimUID != s.Object.GetUID() { // of an earlier claim, whose Works are removed
		a.Spec.Volume = nil
	}
	if !isInTransfer(a.Spec.Volume) && !startTransfer(s, a, d) {
		return Migration{}, false
	}
	v := a.Spec.Volume
	out := volumes.Step(transferInput(s, v, d))
	before := v.State
	shared := ""
	if out.State == v1alpha1.VolumeBinding && before != out.State { // the other cluster gets the volume by this step
		if shared = sharedRefusal(s, s.Claims[s.Key.Name], &v.Source, string(v.From)); shared != "" {
			out = volumes.Output{State: before, Waiting: shared}
		}
	}
	a.Spec.Volume = v.DeepCopy()
	switch {
	case out.Settled:
		a.Spec.Volume.From, a.Spec.Volume.State = "", out.State
	case out.State == volumes.None:
		a.Spec.Volume = nil
	default:
		a.Spec.Volume.State = out.State
	}
	m := Migration{Targets: transferTargets(s, a, v, out)}
	a.Spec.Targets = m.Targets
	if same := a.Spec.Decision.Number == s.Assignment.Spec.Decision.Number; same && !maps.Equal(desiredReplicas(s.Assignment), desiredReplicas(a)) {
		a.Spec.Decision.Number++
		a.Spec.Decision.LastChangeTime = &metav1.MicroTime{Time: s.Now}
	}
	m.MoveBlocked, m.RequeueAfter = transferCondition(s, m.Targets, out, before)
	if shared != "" { // the other claim queues nothing here
		m.RequeueAfter = scope.Sooner(m.RequeueAfter, volumesRetry)
	}
	return m, true
}

// startTransfer begins the transfer that the decision is for; false: there is none.
func startTransfer(s *scope.Scope, a *v1alpha1.Assignment, d Decision) bool {
	if d.VolumeHome == "" || len(a.Spec.Targets) != 1 || !s.Alive() {
		return false
	}
	from := a.Spec.Targets[0].Cluster
	report := s.Claims[s.Key.Name].Volumes[string(from)]
	if report == nil || report.Source == nil || string(from) == d.VolumeHome {
		return false
	}
	a.Spec.Volume = &v1alpha1.VolumeTransfer{
		ClaimUID: s.Object.GetUID(), Source: *report.Source.DeepCopy(), From: from, To: v1alpha1.ClusterName(d.VolumeHome), State: v1alpha1.VolumeScaling,
	}
	return true
}

// transferInput returns what a step depends on.
func transferInput(s *scope.Scope, v *v1alpha1.VolumeTransfer, d Decision) volumes.Input {
	from, to := string(v.From), string(v.To)
	in := volumes.Input{State: v.State, Shared: v.Source.IsShared()}
	home := cmp.Or(d.VolumeHome, to)
	in.Return = !s.Alive() || home == from
	in.From, in.To = volumeSide(s, from, in.Shared), volumeSide(s, to, in.Shared)
	in.From.Needed = isUsedIn(s, from, in.Shared)
	in.From.Done = s.VolumeDone(from, volumes.FromAction(v.State, in.Shared)) || v.State == v1alpha1.VolumeReturning && s.VolumeMissing(from)
	in.To.Needed = s.RequiredIn[to] && s.Alive()
	if action := volumes.ToAction(v.State); action != "" {
		in.To.Done = s.VolumeDone(to, action)
		report := s.Claims[s.Key.Name].Volumes[to]
		in.To.Bound = action == v1alpha1.VolumeBind && in.To.Done && report != nil && volumes.IsSameVolume(report.Source, &v.Source)
	}
	switch v.State {
	case v1alpha1.VolumeRemoving:
		in.From.Gone = isRemovedFrom(s, from) || s.GoneWorks[from]
	case v1alpha1.VolumeUndoing: // a cluster that is out of the inventory may still attach the volume
		w := s.Works[to]
		in.To.Gone = isRemovedFrom(s, to) || in.To.Lost && (w == nil || w.Spec.Removal != nil)
	}
	return in
}

// volumeSide returns what is known of a cluster of a transfer in general. That Cluster and Work are gone does not prove
// that the cluster has let go of a volume which only one may attach, unless a user has deleted the claim.
func volumeSide(s *scope.Scope, cluster string, shared bool) volumes.Side {
	absent := s.Clusters[cluster] == nil && s.Works[cluster] == nil && s.GoneWorks[cluster]
	return volumes.Side{
		Absent: absent, Lost: s.DeclaredLost[cluster] || absent && (shared || !s.Alive()), Waiting: volumeWaiting(s, cluster),
	}
}

// isUsedIn reports whether objects keep the volume in a cluster that it leaves. One that awaits a volume which only one
// cluster may attach was not sent there.
func isUsedIn(s *scope.Scope, cluster string, shared bool) bool {
	for _, u := range s.Claims[s.Key.Name].Users {
		t, ok := limits.TargetOf(u.Targets, cluster)
		if ok && (shared || t.State != v1alpha1.TargetPending) {
			return true
		}
	}
	return false
}

func isRemovedFrom(s *scope.Scope, cluster string) bool {
	w := s.Works[cluster]
	return w != nil && scope.IsRemoved(w)
}

// volumeWaiting returns what a cluster's order about a volume waits for, as far as the cluster reports it.
func volumeWaiting(s *scope.Scope, cluster string) string {
	switch c := s.Clusters[cluster]; {
	case c == nil:
		return cluster + " is not in the inventory"
	case !clusters.IsReachable(c):
		return cluster + " cannot be reached"
	}
	message := s.Reports[cluster].Message
	if report := s.Claims[s.Key.Name].Volumes[cluster]; report != nil {
		message = cmp.Or(message, report.Waiting)
	}
	if message == "" {
		return ""
	}
	return cluster + ": " + message
}

// transferTargets returns the targets of a claim whose volume is on its way. v is the transfer before the step.
func transferTargets(s *scope.Scope, a *v1alpha1.Assignment, v *v1alpha1.VolumeTransfer, out volumes.Output) []v1alpha1.Target {
	var from, to v1alpha1.TargetState
	from, to = v1alpha1.TargetActive, v1alpha1.TargetPending
	switch out.State {
	case v1alpha1.VolumeBinding, v1alpha1.VolumeBound, v1alpha1.VolumeDiscarding, v1alpha1.VolumeWithdrawing:
		to = v1alpha1.TargetActive
	case v1alpha1.VolumeRemoving:
		from, to = v1alpha1.TargetRemoving, v1alpha1.TargetActive
	case v1alpha1.VolumeUndoing:
		to = v1alpha1.TargetRemoving
	case v1alpha1.VolumeReturning, volumes.None:
		to = ""
		if v.To != v.From && s.Works[string(v.To)] != nil && !isRemovedFrom(s, string(v.To)) { // it was lost, and removes its claim when it returns
			to = v1alpha1.TargetRemoving
		}
	}
	if out.Settled {
		from, to = "", v1alpha1.TargetActive
	}
	var targets []v1alpha1.Target
	for _, t := range []v1alpha1.Target{{Cluster: v.From, State: from}, {Cluster: v.To, State: to}} {
		if t.State == "" {
			continue
		}
		t.LastTransitionTime = &metav1.MicroTime{Time: s.Now}
		if stored, ok := limits.TargetOf(a.Spec.Targets, string(t.Cluster)); ok && stored.State == t.State && (out.State == v.State || stored.LastTransitionTime == nil) {
			t.LastTransitionTime = stored.LastTransitionTime
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(x, y v1alpha1.Target) int { return strings.Compare(string(x.Cluster), string(y.Cluster)) })
	return targets
}

// transferCondition reports what a transfer waits for, if it has made no step for a while.
func transferCondition(s *scope.Scope, targets []v1alpha1.Target, out volumes.Output, before v1alpha1.VolumeState) (metav1.Condition, time.Duration) {
	var last time.Time
	for _, t := range targets {
		if t.LastTransitionTime != nil && t.LastTransitionTime.After(last) {
			last = t.LastTransitionTime.Time
		}
	}
	blocked := migration.Blocked{}
	if out.Waiting != "" && out.State == before {
		blocked = migration.Blocked{Reason: migration.NotPrepared, Message: fmt.Sprintf("the volume is %s: %s", out.State, out.Waiting)}
	}
	return moveBlockedCondition(blocked, out.Settled || out.State == volumes.None, s.Now.Sub(last), minBlockedAfter)
}

// ReleasedBy returns the cluster on whose report the next Assignment gives a volume to another one; "" for none.
func ReleasedBy(before, next *v1alpha1.Assignment) string {
	v := next.Spec.Volume
	if v == nil || v.State != v1alpha1.VolumeBinding || before.Spec.Volume != nil && before.Spec.Volume.State == v1alpha1.VolumeBinding {
		return ""
	}
	return string(v.From)
}

// sharedRefusal returns why the volume of a claim stays in a cluster, because another claim has it, too; "" for none has.
func sharedRefusal(s *scope.Scope, claim scope.Claim, source *v1alpha1.VolumeSource, from string) string {
	at := func(name string) volumes.Location {
		if c := s.Clusters[name]; c != nil {
			return location(c)
		}
		return volumes.Location{Name: name}
	}
	var others []volumes.Location
	for _, name := range claim.Shared[scope.VolumeKey(source)] {
		others = append(others, at(name))
	}
	return volumes.SharedRefusal(source.Driver, at(from), others)
}
