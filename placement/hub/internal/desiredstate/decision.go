// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// sourceDependents is the source of a decision that follows from the object's dependents only.
const sourceDependents = "dependency"

// Decision is which clusters are to have the object in the end, and why.
type Decision struct {
	// Policy is what the decision was made from; nil: the object has no policy, or keeps what it has
	// although it has one.
	Policy *policy.EffectivePolicy
	// Mistake of a user keeps the earlier decision in force; nil: there is none.
	Mistake *policy.Error
	// Replicas of the clusters that are to have the object; 0 for kinds without replicas.
	Replicas map[string]int64
	// Divided reports that the replicas are divided: else each cluster has all of them.
	Divided bool
	// Shortfall is what the decision does not provide of what users request; empty: it provides all.
	Shortfall string
	// ShortfallReason is the reason of the condition Placed then.
	ShortfallReason string
	// Note says why an object that has run once is in no cluster; empty: it is, or is requested in none.
	Note string
	// Source names the policy, the annotation or the dependents.
	Source string
	// Digest of the policy.
	Digest string
	// AnnotationPolicyLost reports that the object is annotated, and that the policy which said the
	// rest no longer selects it.
	AnnotationPolicyLost bool
	// VolumeHome is the cluster that is to have the volume of a volume claim, while it moves; empty: nothing is
	// decided about it.
	VolumeHome string
	// DrainPriorityMistake is a mistake in the object's annotation of its drain priority, which counts as 0 then. It
	// is set once in each drain.
	DrainPriorityMistake *policy.Error
	// Refusals are the clusters that did not run all replicas. They are recorded with Policy.
	Refusals []v1alpha1.Refusal
	// RequeueAfter is when to decide again; 0: when something changes.
	RequeueAfter time.Duration
	// AutoscaledReplicas are the wanted replicas of a move that counts what autoscalers request; 0: the object's count.
	AutoscaledReplicas int32
	// AutoscaledIn are the most replicas that were requested of each cluster in such a move.
	AutoscaledIn map[string]int64
}

// includes reports whether a cluster is to have the object.
func (d *Decision) includes(cluster string) bool {
	_, ok := d.Replicas[cluster]
	return ok
}

// storedDecision returns the decision that an Assignment stores.
func storedDecision(s *scope.Scope, a *v1alpha1.Assignment) Decision {
	d := Decision{
		Replicas: map[string]int64{}, Source: a.Spec.Decision.Source, Digest: a.Spec.Decision.Digest,
		AutoscaledReplicas: a.Spec.Decision.AutoscaledReplicas,
	}
	for _, t := range a.Spec.Targets {
		d.Divided = d.Divided || t.RequestedReplicas != nil
	}
	if s.Alive() {
		d.Replicas = desiredReplicas(a)
	}
	return d
}

// desiredReplicas returns the clusters that are to have the object by an Assignment.
func desiredReplicas(a *v1alpha1.Assignment) map[string]int64 {
	replicas := map[string]int64{}
	for _, t := range a.Spec.Targets {
		if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetPending {
			replicas[string(t.Cluster)] = deref(t.Replicas)
		}
	}
	return replicas
}

// takesFrom reports whether a decision takes the object from a cluster that has it, takes replicas
// from a cluster for another one, or divides what each cluster had whole. Fewer replicas in all are
// what the object itself requests.
func takesFrom(before, after Decision) bool {
	taken, given := false, false
	for name, n := range before.Replicas {
		if !after.includes(name) {
			return true
		}
		taken = taken || after.Divided && after.Replicas[name] < n
	}
	for name, n := range after.Replicas {
		given = given || n > before.Replicas[name]
	}
	return taken && (given || !before.Divided)
}

// CurrentAssignment returns a copy of the stored Assignment, with a target for each Work that has
// none. Its Assignment, or the target, was lost then, and the cluster may still have the object.
func CurrentAssignment(s *scope.Scope) *v1alpha1.Assignment {
	a := s.Assignment.DeepCopy()
	recoverTargets(s, a)
	recoverVolume(s, a)
	if s.Object != nil {
		a.Spec.Object = s.Reference()
		a.Spec.Decision.Requests = render.PodRequests(s.Object)
	}
	return a
}

func recoverTargets(s *scope.Scope, a *v1alpha1.Assignment) {
	known := map[string]bool{}
	for _, t := range a.Spec.Targets {
		known[string(t.Cluster)] = true
	}
	for cluster, w := range s.Works {
		if known[cluster] || scope.IsRemoved(w) { // the cluster has nothing, and the Work will be deleted
			continue
		}
		t := v1alpha1.Target{
			Cluster: v1alpha1.ClusterName(cluster), State: v1alpha1.TargetActive,
			LastTransitionTime: &metav1.MicroTime{Time: w.CreationTimestamp.Time},
		}
		if w.Spec.Removal != nil {
			t.State = v1alpha1.TargetRemoving
		}
		if n, ok := scope.RequestedReplicas(w); ok {
			t.Replicas, t.RequestedReplicas = new(n), new(n)
		}
		a.Spec.Targets = append(a.Spec.Targets, t)
		if a.Spec.Object.Name == "" {
			a.Spec.Object = w.Spec.Source
		}
		if a.UID == "" && !s.IsOfEarlierObject(w) {
			a.Spec.Decision.OnDelete = w.Spec.OnDelete
		}
	}
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

// NextAssignment returns a copy of the current Assignment that records what a decision without a
// mistake was made from. Its targets are still the present ones, with what autoscalers request of them.
func NextAssignment(s *scope.Scope, current *v1alpha1.Assignment, decision Decision) *v1alpha1.Assignment {
	next := current.DeepCopy()
	if decision.Mistake != nil {
		return next
	}
	d := &next.Spec.Decision
	changed := !equality.Semantic.DeepEqual(desiredReplicas(s.Assignment), decision.Replicas) || d.Digest != decision.Digest
	d.Source, d.Digest = decision.Source, decision.Digest
	if p := decision.Policy; p != nil {
		recordPolicy(d, s, p, decision.AnnotationPolicyLost)
		d.Refusals = decision.Refusals
		if value := s.Annotations()[v1alpha1.RebalanceAnnotation]; value != "" {
			d.RebalanceDigest = textDigest(value)
		}
	}
	switch value := v1alpha1.OnDelete(s.Annotations()[v1alpha1.OnDeleteAnnotation]); value {
	case v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteDelete:
		d.OnDelete = value
	default: // no annotation, or a mistake, which does not keep an object from being deleted: the recorded one applies
	}
	if d.OnDelete == "" {
		d.OnDelete = v1alpha1.DefaultOnDelete(s.Key.GroupKind)
	}
	recordAutoscaled(&next.Spec, decision)
	if changed || d.LastChangeTime == nil {
		d.Number++
		d.Rollbacks = 0
		d.LastChangeTime = &metav1.MicroTime{Time: s.Now}
	}
	return next
}

// recordAutoscaled records what autoscalers request in a decision that counts it. A move that begins so requests of
// each cluster what runs there.
func recordAutoscaled(next *v1alpha1.AssignmentSpec, d Decision) {
	begins := next.Decision.AutoscaledReplicas == 0 && d.AutoscaledReplicas > 0
	next.Decision.AutoscaledReplicas = d.AutoscaledReplicas
	for i := range next.Targets {
		t := &next.Targets[i]
		n, ok := d.AutoscaledIn[string(t.Cluster)]
		switch {
		case d.AutoscaledReplicas == 0:
			t.AutoscaledReplicas = nil
		case ok:
			t.AutoscaledReplicas = new(int32(n))
			if begins && t.RequestedReplicas != nil {
				t.RequestedReplicas = new(int32(n))
			}
		}
	}
}

func recordPolicy(d *v1alpha1.Decision, s *scope.Scope, p *policy.EffectivePolicy, annotationPolicyLost bool) {
	annotated := p.Source == v1alpha1.SourceAnnotation
	if d.PolicyUID = p.UID; annotated {
		d.PolicyUID = "" // the annotation has placed the object, not the policy
	}
	if !annotationPolicyLost {
		d.AnnotatedPolicyUID, d.AnnotationDigest = "", ""
		if annotated && p.UID != "" {
			d.AnnotatedPolicyUID, d.AnnotationDigest = p.UID, annotationDigest(s)
		}
	}
	if p.UID != "" || d.OnDelete == "" { // an annotation alone keeps what an earlier policy said
		d.OnDelete = p.Spec.OnDelete
	}
}

// annotationDigest identifies the text of the object's annotation.
func annotationDigest(s *scope.Scope) string {
	return textDigest(s.Annotations()[v1alpha1.ClustersAnnotation])
}

func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// isRebalanced reports whether a user has ordered to divide the replicas anew since the stored decision.
func isRebalanced(s *scope.Scope, a *v1alpha1.Assignment) bool {
	value := s.Annotations()[v1alpha1.RebalanceAnnotation]
	return value != "" && textDigest(value) != a.Spec.Decision.RebalanceDigest
}

// ClustersLosing returns the clusters that begin to lose the object, or are ordered to remove it.
func ClustersLosing(before, next []v1alpha1.Target) (names []string) {
	states := map[v1alpha1.ClusterName]v1alpha1.TargetState{}
	for _, t := range before {
		states[t.Cluster] = t.State
	}
	for _, t := range next {
		state, ok := states[t.Cluster]
		if !ok {
			continue
		}
		leaves := state == v1alpha1.TargetActive && t.State != v1alpha1.TargetActive
		if leaves || t.State == v1alpha1.TargetRemoving && state != v1alpha1.TargetRemoving {
			names = append(names, string(t.Cluster))
		}
	}
	return names
}

// replicasOf returns how many replicas an object requests, and whether its kind has replicas. A
// Pod is one.
func replicasOf(key kinds.Key, o *unstructured.Unstructured) (int32, bool) {
	switch {
	case o == nil:
		return 0, false
	case key.IsPod():
		return 1, true
	}
	return render.Replicas(o)
}

// ClustersCounted returns the clusters whose replicas a step relies on: those that keep the object while a cluster gets
// an order to remove it, or to run fewer replicas. The value is true for one that gets the order to run fewer.
func ClustersCounted(before, next []v1alpha1.Target) map[string]bool {
	stored := map[v1alpha1.ClusterName]v1alpha1.Target{}
	for _, t := range before {
		stored[t.Cluster] = t
	}
	counted, takes := map[string]bool{}, false
	for _, t := range next {
		was, ok := stored[t.Cluster]
		removes := t.State == v1alpha1.TargetRemoving && was.State != v1alpha1.TargetRemoving
		shrinks := ok && deref(t.RequestedReplicas) < deref(was.RequestedReplicas)
		takes = takes || ok && removes || shrinks
		if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining {
			counted[string(t.Cluster)] = shrinks
		}
	}
	if !takes || len(next) < 2 { // alone, a cluster scales down as a Deployment does
		return nil
	}
	return counted
}

func deref(n *int32) int64 { return int64(ptr.Deref(n, 0)) }
