// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// unknownCluster stands for the cluster of an object that has started, by its status at the hub, and whose
// records are lost.
const unknownCluster = "a cluster that the hub has no record of"

// RecordStarted records in an Assignment the clusters in which an object that runs once starts by its targets.
// The record is stored with the targets, before the Works are.
func RecordStarted(s *scope.Scope, a *v1alpha1.Assignment) {
	if s.Object == nil { // it is gone, and its record goes with the last cluster
		return
	}
	started := startedIn(s, a)
	delete(started, unknownCluster)
	a.Spec.Decision.StartedIn = nil
	for _, name := range slices.Sorted(maps.Keys(started)) {
		a.Spec.Decision.StartedIn = append(a.Spec.Decision.StartedIn, v1alpha1.ClusterName(name))
	}
}

// startedIn returns the clusters in which an object that runs once has started, or may have: those that are
// recorded, and those with a Work of it, unless the cluster reports that it never created it.
func startedIn(s *scope.Scope, a *v1alpha1.Assignment) map[string]bool {
	if s.Object == nil || !policy.RunsOnce(s.Key.GroupKind) {
		return nil
	}
	started := map[string]bool{}
	if s.Assignment.Spec.Object.UID == s.Object.GetUID() {
		for _, name := range s.Assignment.Spec.Decision.StartedIn {
			started[string(name)] = true
		}
	}
	replaced := false
	for _, t := range a.Spec.Targets {
		name := string(t.Cluster)
		w := s.Works[name]
		switch {
		case isReplaced(s, t):
			delete(started, name)
			replaced = true
		case t.State == v1alpha1.TargetPending, w != nil && s.IsOfEarlierObject(w):
		case w == nil && t.State == v1alpha1.TargetRemoving && !s.WasSent(name):
		case w != nil && isNeverCreated(s.Reports[name], w):
			delete(started, name)
		case w == nil || !scope.IsRemoved(w) || hasUID(w):
			started[name] = true
		}
	}
	if len(started) == 0 && !replaced && hasStarted(s.Object) {
		started[unknownCluster] = true
	}
	return started
}

// isReplaced reports whether others replace a cluster that may have started an object which runs once: an admin has
// declared the cluster lost. What has finished does not start again.
func isReplaced(s *scope.Scope, t v1alpha1.Target) bool {
	name := string(t.Cluster)
	replaced := t.State == v1alpha1.TargetLost || t.Returned
	if s.DeclaredLost[name] && !replaced { // the end may be only in its last report
		replaced = !render.HasFinished(reportedObject(s, name))
	}
	return replaced && !render.HasFinished(s.Object)
}

// reportedObject returns an object with the status that a cluster has last reported of it. The hub may not have stored
// that at its own object: with status.mode None it never does.
func reportedObject(s *scope.Scope, cluster string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"status": s.Reports[cluster].Status}}
	o.SetGroupVersionKind(s.Key.WithVersion(s.Kind.Version))
	return o
}

// isNeverCreated reports whether a cluster has refused the present revision of a Work, or the last one before
// the order to remove it, and has never reported an object.
func isNeverCreated(r scope.WorkReport, w *v1alpha1.Work) bool {
	if hasUID(w) || scope.IsRemoved(w) || len(w.Status.Manifests) == 0 {
		return false
	}
	if w.Spec.Removal == nil {
		return r.RefusalReason != "" && w.Status.Revision >= w.Spec.Revision
	}
	before := w.DeepCopy()
	before.Spec.Removal = nil // the report on the object, not on the order
	return scope.ReportOf(kinds.KeyOf(w.Spec.Source).GroupKind, before).RefusalReason != ""
}

// hasUID reports whether a cluster has reported that it has, or had, an object of a Work.
func hasUID(w *v1alpha1.Work) bool {
	isSet := func(uid types.UID) bool { return uid != "" }
	return w.Spec.Removal != nil && slices.ContainsFunc(w.Spec.Removal.UIDs, isSet) ||
		slices.ContainsFunc(w.Status.Manifests, func(m v1alpha1.ManifestStatus) bool { return isSet(m.UID) })
}

// hasStarted reports whether an object at the hub has the status of one that has run.
func hasStarted(o *unstructured.Unstructured) bool {
	start, _, _ := unstructured.NestedString(o.Object, "status", "startTime")
	return start != "" || render.HasFinished(o)
}

// addStarted adds to the input of a plan what it depends on of an object that runs once.
func addStarted(in *policy.PlanInput, s *scope.Scope, p *policy.EffectivePolicy, a *v1alpha1.Assignment) {
	if in.Started = startedIn(s, a); len(in.Started) == 0 {
		return
	}
	// The hub must have stored the end, because a cluster that removes the object no longer reports it.
	in.Finished = p.Spec.Status.Mode == v1alpha1.StatusNone || render.HasFinished(s.Object)
	reported := false
	for _, t := range a.Spec.Targets {
		name := string(t.Cluster)
		if !in.Started[name] || t.State == v1alpha1.TargetRemoving {
			continue
		}
		r := s.Reports[name]
		reported = true
		if in.Finished = in.Finished && render.HasFinished(reportedObject(s, name)); r.Gone && !s.IsOfEarlierObject(s.Works[name]) {
			in.DeletedIn = name
		}
	}
	in.Finished = in.Finished && (reported || render.HasFinished(s.Object))
}

// runningReplicas returns the available replicas of a cluster that runs the present object; 1 for a ready object
// whose replicas are not divided.
func runningReplicas(s *scope.Scope, p *policy.EffectivePolicy, cluster string) int64 {
	c, r := s.Clusters[cluster], s.Reports[cluster]
	_, hasReplicas := replicasOf(s.Key, s.Object)
	switch {
	case c == nil || !clusters.IsReachable(c) || !r.Applied:
		return 0
	case hasReplicas && p.Spec.Replicas.Mode == v1alpha1.ReplicasDivide:
		return int64(r.Counts.Available)
	case r.Ready:
		return 1
	}
	return 0
}

// keepStarted takes back a move of an object that runs once, which an earlier version of the hub has begun and
// no plan has decided about since.
func keepStarted(s *scope.Scope, a *v1alpha1.Assignment, d *Decision) {
	started := startedIn(s, a)
	if len(started) == 0 || len(d.Replicas) == 0 {
		return
	}
	moves := false
	for _, t := range a.Spec.Targets {
		name := string(t.Cluster)
		leaves := t.State == v1alpha1.TargetDraining || t.State == v1alpha1.TargetRemoving
		moves = moves || leaves && started[name]
		if t.State == v1alpha1.TargetDraining && started[name] && !d.includes(name) {
			d.Replicas[name] = deref(t.RequestedReplicas)
		}
	}
	for _, t := range a.Spec.Targets {
		if name := string(t.Cluster); moves && t.State == v1alpha1.TargetPending && !started[name] {
			delete(d.Replicas, name)
		}
	}
}
