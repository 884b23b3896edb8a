// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// WorkAction is what is to be done with the Work of one cluster.
type WorkAction int

// The actions.
const (
	// KeepWork leaves the Work as it is.
	KeepWork WorkAction = iota
	// WriteWork creates the Work, or changes its spec if that orders something else.
	WriteWork
	// DeleteWork deletes the Work, since the agent has carried out the order to remove.
	DeleteWork
	// DropResumeAnnotation removes a user's answer from the Work, since the agent has acted on it.
	DropResumeAnnotation
)

// WorkChange is the change of one Work.
type WorkChange struct {
	// Cluster of the Work.
	Cluster string
	// Stored is the present Work; nil: there is none.
	Stored *v1alpha1.Work
	// Action to carry out.
	Action WorkAction
	// Spec to write. It has no signature, and no data version of a Secret.
	Spec v1alpha1.WorkSpec
	// SecretData are to be stored beside the Work before it is written; nil: not for this change.
	SecretData map[string][]byte
	// Mistake of a user keeps the Work from having the present object. The last good manifest is
	// written then, with the replicas that are requested now.
	Mistake error
	// Err is why the change cannot be carried out.
	Err error
}

// WorkChanges are the changes of all Works of one object.
type WorkChanges struct {
	// Finished are the Works of removed targets, to be deleted before all other changes.
	Finished []WorkChange
	// Targets has one change for each target.
	Targets []WorkChange
	// TrafficMerged is the condition of that type; nil for none.
	TrafficMerged *metav1.Condition
}

// Mistake joins the mistakes of users in all changes; nil: there is none.
func (c WorkChanges) Mistake() error {
	var mistakes []error
	for _, t := range c.Targets {
		if t.Mistake != nil {
			mistakes = append(mistakes, fmt.Errorf("for %s: %w", t.Cluster, t.Mistake))
		}
	}
	return errors.Join(mistakes...)
}

// RenderWorks returns the change of each Work, by the stored Assignment. A target whose Work was
// deleted without an order so counts as lost: that is why the Work of a removed target is deleted
// only after its target.
func RenderWorks(s *scope.Scope, a *v1alpha1.Assignment, d Decision) WorkChanges {
	var changes WorkChanges
	for cluster, w := range s.Works {
		if _, ok := limits.TargetOf(a.Spec.Targets, cluster); !ok && scope.IsRemoved(w) {
			changes.Finished = append(changes.Finished, removeWork(s, a, WorkChange{Cluster: cluster, Stored: w}))
		}
	}
	traffic, merged := serviceTraffic(s, d)
	changes.TrafficMerged = merged
	for i := range a.Spec.Targets {
		change := renderWork(s, a, d, &a.Spec.Targets[i])
		if change.Action == WriteWork && change.Spec.Removal == nil {
			change.Spec.Traffic = traffic[change.Cluster]
		}
		changes.Targets = append(changes.Targets, change)
	}
	return changes
}

func renderWork(s *scope.Scope, a *v1alpha1.Assignment, d Decision, t *v1alpha1.Target) WorkChange {
	cluster := string(t.Cluster)
	w := s.Works[cluster]
	change := WorkChange{Cluster: cluster, Stored: w}
	if w != nil && w.Annotations[v1alpha1.ResumeAnnotation] != "" && w.Status.Halted == nil && s.Reports[cluster].Applied {
		change.Action = DropResumeAnnotation
		return change
	}
	switch {
	case t.State == v1alpha1.TargetLost: // its next order depends on what is decided when it reports
		return change
	case w != nil && (t.State == v1alpha1.TargetRemoving || scope.IsRemoved(w) || s.IsOfEarlierObject(w)):
		return removeWork(s, a, change)
	case t.State == v1alpha1.TargetRemoving && s.WasSent(cluster):
		return removeLostWork(s, a, change)
	case t.State == v1alpha1.TargetRemoving, t.State == v1alpha1.TargetPending, s.Object == nil:
		return change
	}
	return syncWork(s, a, d, t, change)
}

// removeWork orders the removal, and deletes the Work when the agent has carried it out.
func removeWork(s *scope.Scope, a *v1alpha1.Assignment, change WorkChange) WorkChange {
	w := change.Stored
	switch {
	case w.Spec.Removal == nil:
		change.Action, change.Spec = WriteWork, *w.Spec.DeepCopy()
		change.Spec.Removal = &v1alpha1.Removal{
			Policy: cmp.Or(leftByVolume(a, change.Cluster), onDelete(s, a, w)), SourceUID: w.Spec.Source.UID, UIDs: scope.ReportOf(s.Key.GroupKind, w).UIDs,
		}
	case scope.IsRemoved(w):
		change.Action = DeleteWork
	}
	return change
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

// onDelete returns what the removal does: what the decision records, or else the Work, which
// outlives a lost Assignment.
func onDelete(s *scope.Scope, a *v1alpha1.Assignment, w *v1alpha1.Work) v1alpha1.OnDelete {
	recorded := a.Spec.Decision.OnDelete
	if w != nil {
		recorded = cmp.Or(recorded, w.Spec.OnDelete)
	}
	return cmp.Or(recorded, v1alpha1.DefaultOnDelete(s.Key.GroupKind))
}

// removeLostWork makes a Work again that was lost with or before its order to remove, so that the
// agent removes what the cluster has.
func removeLostWork(s *scope.Scope, a *v1alpha1.Assignment, change WorkChange) WorkChange {
	if _, ok := s.WritableCluster(change.Cluster); !ok {
		return change
	}
	source := a.Spec.Object
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: source.Group, Version: source.Version, Kind: source.Kind})
	o.SetNamespace(source.Namespace)
	o.SetName(source.Name)
	raw, err := o.MarshalJSON()
	if err != nil {
		change.Err = fmt.Errorf("encode %s: %w", s.Key, err)
		return change
	}
	change.Action = WriteWork
	change.Spec = v1alpha1.WorkSpec{
		Source: source, Manifests: []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: raw}, Resource: source.Resource}},
		Removal: &v1alpha1.Removal{Policy: onDelete(s, a, nil), SourceUID: source.UID},
	}
	return change
}

// syncWork renders the Work of a target that has the object.
func syncWork(s *scope.Scope, a *v1alpha1.Assignment, d Decision, t *v1alpha1.Target, change WorkChange) WorkChange {
	cluster, ok := s.WritableCluster(change.Cluster)
	if !ok {
		return change
	}
	w := change.Stored
	least := leastReplicas(a, t)
	replicas := t.RequestedReplicas
	if replicas == nil {
		replicas = least
	}
	raw, data, mistake := renderManifest(s, replicas, cluster)
	change.Mistake = mistake
	if mistake != nil && w == nil {
		return change
	}
	generation := s.Object.GetGeneration()
	// While a Job is paused nothing else of it changes: the API server would reject other completions
	// than it had before.
	if mistake != nil || w != nil && t.RequestedReplicas != nil && render.Pauses(s.Object, *t.RequestedReplicas) {
		generation = w.Spec.SourceGeneration
		if raw, change.Err = storedManifest(w, replicas); change.Err != nil {
			return change
		}
	}
	spec := v1alpha1.WorkSpec{}
	if w != nil {
		spec = *w.Spec.DeepCopy()
		spec.Removal = nil // takes back an order that is not carried out
	}
	m := v1alpha1.Manifest{Object: runtime.RawExtension{Raw: raw}, Resource: s.Kind.Resource}
	if s.Key.IsSecret() {
		if change.SecretData = data; mistake != nil {
			change.SecretData, m.Secret = nil, spec.Manifests[0].Secret
		}
	}
	spec.PodSecurity = podSecurity(s.NamespaceLabels)
	spec.SourceGeneration, spec.Manifests = generation, []v1alpha1.Manifest{m}
	spec.Source, spec.OnDelete, spec.MinReplicas = s.Reference(), a.Spec.Decision.OnDelete, least
	if d.Policy != nil && (w == nil || !d.AnnotationPolicyLost) {
		spec.Apply, spec.Associated = d.Policy.Spec.Apply, d.Policy.Spec.Status.Associated
	}
	change.Err = orderVolume(s, a, d, change.Cluster, &spec)
	change.Action, change.Spec = WriteWork, spec
	return change
}

// orderVolume adds to a Work what the hub orders of the volume of a claim.
func orderVolume(s *scope.Scope, a *v1alpha1.Assignment, d Decision, cluster string, spec *v1alpha1.WorkSpec) error {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	v := a.Spec.Volume
	switch {
	case v != nil && string(v.From) == cluster:
		spec.Volume = &v1alpha1.VolumeOrder{Action: volumes.FromAction(v.State, v.Source.IsShared()), Source: v.Source.DeepCopy()}
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

// volumeNameField is what a cluster sets at the creation of a claim only: nothing can change it.
const volumeNameField = "spec.volumeName"

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

// leastReplicas returns how many replicas a cluster needs in a move that counts what autoscalers request; nil: the
// autoscaler decides.
func leastReplicas(a *v1alpha1.Assignment, t *v1alpha1.Target) *int32 {
	n := requestedOf(t)
	if a.Spec.Decision.AutoscaledReplicas == 0 || t.State != v1alpha1.TargetActive || ptr.Deref(n, 0) == 0 {
		return nil
	}
	return new(*n)
}

// podSecurity returns the Pod Security levels of the object's namespace.
func podSecurity(namespaceLabels map[string]string) map[string]v1alpha1.PodSecurityLevel {
	var levels map[string]v1alpha1.PodSecurityLevel
	for _, mode := range []string{"enforce", "warn", "audit"} {
		switch level := v1alpha1.PodSecurityLevel(namespaceLabels["pod-security.kubernetes.io/"+mode]); level {
		case v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted:
			if levels == nil {
				levels = map[string]v1alpha1.PodSecurityLevel{}
			}
			levels[mode] = level
		}
	}
	return levels
}
