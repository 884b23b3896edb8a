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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

const (
	// volumesRetry is when to decide again about a move that was refused because of a volume: its cluster may not
	// have reported yet.
	volumesRetry = 5 * time.Second
	// volumeRecheck is how often an object that awaits a volume is planned: the volume has an Assignment of its own.
	volumeRecheck = time.Second
	// volumeNameField is what a cluster sets at the creation of a claim only: nothing can change it.
	volumeNameField = "spec.volumeName"
)

// assignVolume decides about the volume of a claim that is in one cluster, and whose policy transfers volumes: the
// claim is to be where the objects are that need it, or else where its policy wants it. Where objects need it in several
// clusters, each has a claim of its own, as without transfers.
func assignVolume(s *scope.Scope, p *policy.EffectivePolicy, current *v1alpha1.Assignment, d *Decision) *policy.Error {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) || p.Spec.Volumes != v1alpha1.VolumesTransfer {
		return nil
	}
	present := desiredReplicas(current)
	v := current.Spec.Volume
	if isInTransfer(v) {
		d.VolumeHome = volumeHome(s, *d, string(v.To))
		d.Replicas = present
		return nil
	}
	if len(present) != 1 || len(s.WantedIn) > 1 {
		return nil
	}
	from := slices.Collect(maps.Keys(present))[0]
	home := volumeHome(s, *d, from)
	d.Replicas = present
	if home == from {
		return nil
	}
	why := volumeRefusal(s, from, home)
	if why == "" && len(current.Spec.Targets) > 1 {
		why = "it has not left another cluster yet"
	}
	if why != "" {
		return &policy.Error{
			Reason: v1alpha1.ReasonVolumesRefused, Object: p.Source, Field: "spec.volumes",
			Message: fmt.Sprintf("PersistentVolumeClaim %s has data in %s: it stays there: %s", s.Key.Name, from, why),
		}
	}
	d.VolumeHome = home
	d.Replicas = maps.Clone(present)
	d.Replicas[home] = 0
	return nil
}

// volumeHome returns the cluster that is to have a volume, by its dependents or else by the decision.
func volumeHome(s *scope.Scope, d Decision, otherwise string) string {
	wanted := slices.Collect(maps.Keys(s.WantedIn))
	if len(wanted) == 0 && len(s.RequiredIn) == 0 {
		wanted = slices.Collect(maps.Keys(d.Replicas))
	}
	if len(wanted) == 1 {
		return wanted[0]
	}
	return otherwise
}

func isInTransfer(v *v1alpha1.VolumeTransfer) bool { return v != nil && v.From != "" }

// volumeRefusal returns why the volumes of the object can not move from a cluster to another one; "" when they can.
func volumeRefusal(s *scope.Scope, from, to string) string {
	if others := otherClaims(s, from); len(others) > 0 {
		return fmt.Sprintf("PersistentVolumeClaim %s was made in the cluster, by volumeClaimTemplates or another controller: only claims of the hub move", others[0])
	}
	here, there := s.Clusters[from], s.Clusters[to]
	if here == nil || there == nil {
		return "both clusters must be in the inventory"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		claim := s.Claims[name]
		if v := claim.Transfer; isInTransfer(v) && (v.From == v1alpha1.ClusterName(from) || v.To == v1alpha1.ClusterName(from)) &&
			(v.From == v1alpha1.ClusterName(to) || v.To == v1alpha1.ClusterName(to)) {
			continue // it is on the way
		}
		if _, ok := limits.TargetOf(claim.Targets, from); !ok {
			if len(claim.Targets) == 0 {
				return fmt.Sprintf("PersistentVolumeClaim %s must be placed by a policy with volumes: Transfer", name)
			}
			if t, ok := limits.TargetOf(claim.Targets, to); ok && t.State == v1alpha1.TargetActive {
				continue // it has moved already
			}
		}
		if why := volumes.Refusal(claim.Volumes[from], location(here), location(there)); why != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s: %s", name, why)
		}
		if why := sharedRefusal(s, claim, claim.Volumes[from].Source, from); why != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s: %s", name, why)
		}
	}
	return ""
}

func location(c *v1alpha1.Cluster) volumes.Location {
	return volumes.Location{Name: c.Name, Properties: c.Spec.Properties}
}

// otherClaims returns the claims of an object that the hub has not placed by themselves.
func otherClaims(s *scope.Scope, cluster string) (names []string) {
	if s.Object == nil || v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	for _, name := range render.VolumeClaimNames(s.Object) {
		if _, ok := s.Claims[name]; !ok {
			names = append(names, name)
		}
	}
	for _, reported := range s.Reports[cluster].VolumeClaims {
		namespace, name, _ := strings.Cut(reported, "/")
		if _, ok := s.Claims[name]; !ok || namespace != s.Key.Namespace {
			names = append(names, name)
		}
	}
	return names
}

// movesExclusiveVolume reports whether the object uses a volume that only one cluster may attach, and its policy
// transfers volumes: it is removed before it starts elsewhere.
func movesExclusiveVolume(s *scope.Scope, d Decision) bool {
	if d.Policy == nil || d.Policy.Spec.Volumes != v1alpha1.VolumesTransfer || v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return false
	}
	for _, claim := range s.Claims {
		if claim.Transfer != nil && !volumes.IsShared(&claim.Transfer.Source) {
			return true
		}
		for _, report := range claim.Volumes {
			if report.Source != nil && !volumes.IsShared(report.Source) {
				return true
			}
		}
	}
	return false
}

// awaitVolumes sets which clusters await volumes of the object before they start it, and reports whether any does.
func awaitVolumes(s *scope.Scope, in *migration.Input) (any bool) {
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return false
	}
	for i := range in.Targets {
		t := &in.Targets[i]
		if !t.Wanted || t.State != migration.Pending && t.State != migration.None {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
			if !hasVolume(s.Claims[name], t.Cluster) {
				t.Awaits, any = fmt.Sprintf("the volume of PersistentVolumeClaim %s must come first", name), true
				break
			}
		}
	}
	return any
}

// hasVolume reports whether a cluster has the volume of a claim, or the claim has none that moves.
func hasVolume(claim scope.Claim, cluster string) bool {
	if v := claim.Transfer; isInTransfer(v) {
		bound := v.State == v1alpha1.VolumeBound || v.State == v1alpha1.VolumeDiscarding || v.State == v1alpha1.VolumeRemoving
		return bound && string(v.To) == cluster
	}
	if t, ok := limits.TargetOf(claim.Targets, cluster); ok && t.State == v1alpha1.TargetActive {
		return true
	}
	for _, t := range claim.Targets {
		if report := claim.Volumes[string(t.Cluster)]; report != nil && report.Source != nil {
			return false
		}
	}
	return true
}

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
	in := volumes.Input{State: v.State, Shared: volumes.IsShared(&v.Source)}
	home := cmp.Or(d.VolumeHome, to)
	in.Return = !s.Alive() || home == from
	in.From = volumes.Side{
		Needed: s.RequiredIn[from], Waiting: volumeWaiting(s, from), Done: s.VolumeDone(from, volumes.FromAction(v.State, in.Shared)),
	}
	in.To = volumes.Side{Needed: s.RequiredIn[to] && s.Alive(), Waiting: volumeWaiting(s, to)}
	if action := volumes.ToAction(v.State); action != "" {
		in.To.Done = s.VolumeDone(to, action)
		report := s.Claims[s.Key.Name].Volumes[to]
		in.To.Bound = action == v1alpha1.VolumeBind && in.To.Done && report != nil && volumes.IsSameVolume(report.Source, &v.Source)
	}
	switch v.State {
	case v1alpha1.VolumeRemoving:
		in.From.Gone = isRemovedFrom(s, from) || s.GoneWorks[from]
	case v1alpha1.VolumeUndoing: // a cluster that is out of the inventory may still attach the volume
		in.To.Gone = isRemovedFrom(s, to)
	}
	return in
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

// leftByVolume returns Delete for a cluster whose claim is removed because its volume has left it, or did not come, and
// "" for others. The volume's state proves that the data is elsewhere.
func leftByVolume(a *v1alpha1.Assignment, cluster string) v1alpha1.OnDelete {
	v := a.Spec.Volume
	if v != nil && (v.State == v1alpha1.VolumeRemoving && string(v.From) == cluster || v.State == v1alpha1.VolumeUndoing && string(v.To) == cluster) {
		return v1alpha1.OnDeleteDelete
	}
	return ""
}

// orderVolume adds to a Work what the hub orders of the volume of a claim.
func orderVolume(s *scope.Scope, a *v1alpha1.Assignment, d Decision, cluster string, spec *v1alpha1.WorkSpec) error {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	v := a.Spec.Volume
	switch {
	case v != nil && string(v.From) == cluster:
		spec.Volume = &v1alpha1.VolumeOrder{Action: volumes.FromAction(v.State, volumes.IsShared(&v.Source)), Source: v.Source.DeepCopy()}
	case v != nil && string(v.To) == cluster && volumes.ToAction(v.State) != "":
		spec.Volume = &v1alpha1.VolumeOrder{Action: volumes.ToAction(v.State), Source: v.Source.DeepCopy()}
		return nameVolume(spec, v1alpha1.VolumeName(s.Object.GetUID(), &v.Source))
	case spec.Volume != nil && spec.Volume.Action != v1alpha1.VolumeKeep: // the transfer is unknown: what was ordered stays
	case d.Policy == nil:
	case d.Policy.Spec.Volumes == v1alpha1.VolumesTransfer:
		spec.Volume = &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeKeep}
	default:
		spec.Volume = nil
	}
	return nil
}

// nameVolume sets the volume of the claim in a Work. The agent sets it at the creation only.
func nameVolume(spec *v1alpha1.WorkSpec, name string) error {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(spec.Manifests[0].Object.Raw); err != nil {
		return fmt.Errorf("decode manifest: %w", err)
	}
	if err := unstructured.SetNestedField(o.Object, name, strings.Split(volumeNameField, ".")...); err != nil {
		return fmt.Errorf("set %s: %w", volumeNameField, err)
	}
	raw, err := render.MarshalManifest(o)
	if err != nil {
		return err
	}
	spec.Manifests[0].Object.Raw = raw
	if !slices.Contains(spec.Apply.CreateOnly, volumeNameField) {
		spec.Apply.CreateOnly = append(slices.Clone(spec.Apply.CreateOnly), volumeNameField)
	}
	return nil
}

// recoverVolume makes the transfer of a claim again whose Assignment was lost, from what its Works order.
func recoverVolume(s *scope.Scope, a *v1alpha1.Assignment) {
	if a.UID != "" || !v1alpha1.IsVolumeClaim(s.Key.GroupKind) || s.Object == nil {
		return
	}
	v := &v1alpha1.VolumeTransfer{ClaimUID: s.Object.GetUID()}
	from, to := v1alpha1.VolumeAction(""), v1alpha1.VolumeAction("")
	for cluster, w := range s.Works {
		if w.Spec.Volume == nil || w.Spec.Volume.Source == nil || s.IsOfEarlierObject(w) {
			continue
		}
		v.Source = *w.Spec.Volume.Source.DeepCopy()
		if name, _, _ := unstructured.NestedString(manifestFields(w), "spec", "volumeName"); name == v1alpha1.VolumeName(v.ClaimUID, &v.Source) {
			v.To, to = v1alpha1.ClusterName(cluster), w.Spec.Volume.Action
		} else {
			v.From, from = v1alpha1.ClusterName(cluster), w.Spec.Volume.Action
		}
	}
	switch {
	case v.To == "" && (from == v1alpha1.VolumeFence || from == v1alpha1.VolumeRetain): // no other cluster has an order
		v.To, v.State = v.From, v1alpha1.VolumeReturning
	case v.To == "":
		return
	case to == v1alpha1.VolumeDiscard:
		v.State = v1alpha1.VolumeWithdrawing
	case from == v1alpha1.VolumeDiscard:
		v.State = v1alpha1.VolumeDiscarding
	case from == "":
		v.State = v1alpha1.VolumeBound
	default:
		v.State = v1alpha1.VolumeBinding
	}
	a.Spec.Volume = v
}

func manifestFields(w *v1alpha1.Work) map[string]any {
	if o, err := scope.ManifestOf(w); err == nil && o != nil {
		return o.Object
	}
	return nil
}
