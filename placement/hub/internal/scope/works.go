// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/aggregate"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// WorkReport is what an agent reports in a Work's status.
type WorkReport struct {
	// Applied reports that the cluster has the present revision of the Work.
	Applied bool
	// Current reports that its controllers have observed it, too.
	Current bool
	// Read reports that the agent has read the object's status after an apply, of this revision or an earlier one.
	Read bool
	// Ready reports that the object is ready there.
	Ready bool
	// Gone reports that the object ran once, and that another client has deleted it in the cluster.
	Gone bool
	// Message says why it is not applied.
	Message string
	// RefusalReason is why it is not applied when retrying does not help.
	RefusalReason string

	// UIDs of the objects in the cluster, one for each manifest.
	UIDs []types.UID
	// Replicas is spec.replicas in the cluster.
	Replicas *int32
	// AutoscaledReplicas is spec.replicas in the cluster if another field manager owns it there by the policy; else nil.
	AutoscaledReplicas *int32
	// Counts of replicas by the object's status.
	Counts v1alpha1.ReplicaCounts
	// ObservedGeneration is the generation of the hub's object that Status is about.
	ObservedGeneration int64
	// Generation of the object in the cluster.
	Generation int64
	// Status of the object in the cluster.
	Status map[string]any
	// Associated objects in the cluster, such as Pods.
	Associated *v1alpha1.Associated
	// VolumeClaims that the object's Pods use, as namespace/name.
	VolumeClaims []string
	// Refused are the replicas that the cluster does not run; nil for none.
	Refused *v1alpha1.RefusedReplicas
}

// WorkState is what is known of a Work in its cluster.
type WorkState string

// States of a Work.
const (
	// WorkApplied: the cluster has the present revision.
	WorkApplied WorkState = "applied"
	// WorkPending: the agent has not reported the present revision as applied.
	WorkPending WorkState = "pending"
	// WorkBlocked: the agent reports a reason that a retry does not remove.
	WorkBlocked WorkState = "blocked"
	// WorkRemoving: the hub has ordered the removal, and waits for the agent.
	WorkRemoving WorkState = "removing"
)

// StateOf returns the state of a Work, and why it is blocked.
func StateOf(w *v1alpha1.Work) (state WorkState, reason string) {
	applied := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Status != metav1.ConditionTrue {
		reason = refusalReason(applied.Reason)
	}
	switch {
	case reason != "":
		return WorkBlocked, reason
	case w.Spec.Removal != nil:
		return WorkRemoving, ""
	case isApplied(w, applied):
		return WorkApplied, ""
	}
	return WorkPending, ""
}

// isApplied reports whether the cluster has the present revision of a Work.
func isApplied(w *v1alpha1.Work, applied *metav1.Condition) bool {
	return w.Status.Revision >= w.Spec.Revision && applied != nil && applied.Status == metav1.ConditionTrue
}

// ReportOf returns what a Work's status reports of an object of this kind.
func ReportOf(gk schema.GroupKind, w *v1alpha1.Work) WorkReport {
	var r WorkReport
	applied := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	r.Applied = isApplied(w, applied)
	if applied != nil && applied.Status != metav1.ConditionTrue {
		r.Message, r.RefusalReason = applied.Message, refusalReason(applied.Reason)
	}
	if len(w.Status.Manifests) == 0 {
		return r
	}
	for i := range w.Status.Manifests {
		r.UIDs = append(r.UIDs, w.Status.Manifests[i].UID)
	}
	m := &w.Status.Manifests[0]
	r.Replicas, r.AutoscaledReplicas = m.Replicas, m.AutoscaledReplicas
	// The agent answers an order to remove in the Work's condition. The manifest's condition is then
	// an earlier one.
	if c := meta.FindStatusCondition(m.Conditions, v1alpha1.ConditionApplied); w.Spec.Removal == nil && c != nil && c.Status != metav1.ConditionTrue {
		r.Message, r.RefusalReason, r.Gone = c.Message, refusalReason(c.Reason), c.Reason == v1alpha1.ReasonDeletedInCluster
	}
	r.Read = applied != nil && applied.Status == metav1.ConditionTrue && r.Message == "" && r.RefusalReason == "" || r.Gone
	r.Associated, r.Generation, r.VolumeClaims = m.Associated, m.Generation, m.VolumeClaims
	r.ObservedGeneration, r.Refused = m.SourceGeneration, m.RefusedReplicas
	r.Current = r.Applied
	if m.Status != nil {
		if utiljson.Unmarshal(m.Status.Raw, &r.Status) != nil {
			r.Status = nil
		}
	}
	if observed, ok := r.Status["observedGeneration"].(int64); ok && observed < m.AppliedGeneration {
		r.Current, r.ObservedGeneration = false, max(0, m.SourceGeneration-1)
	}
	r.Ready = r.Current && m.Ready
	r.Counts = aggregate.ReplicaCounts(gk, r.Status)
	return r
}

// Observation returns what the report says of the object's availability; false when it says nothing.
func (r WorkReport) Observation(at time.Time) (stability.Observation, bool) {
	if !r.Read {
		return stability.Observation{}, false
	}
	if r.Gone {
		return stability.Observation{At: at}, true
	}
	return stability.Observation{At: at, Available: r.Counts.Available, Ready: r.Ready}, true
}

// refusalReason returns the reason of Applied=False if a user must act, and else "".
func refusalReason(reason string) string {
	switch reason {
	case v1alpha1.ReasonProgressing, v1alpha1.ReasonRemoved, v1alpha1.ReasonDeletedInCluster:
		return ""
	}
	return reason
}

// IsRemoved reports whether the agent has carried out the order to remove. It also reports true when
// a user has answered the order with TakeCluster: the agent then reports its object as applied and
// keeps it.
func IsRemoved(w *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	if w.Spec.Removal == nil || c == nil {
		return false
	}
	kept := c.Status == metav1.ConditionTrue && w.Status.Term == w.Spec.Term && w.Spec.Term > 0 && w.Status.Revision == w.Spec.Revision
	return kept || c.Reason == v1alpha1.ReasonRemoved && w.Status.Revision >= w.Spec.Revision
}

// ManifestOf decodes the manifest of a Work; it is nil when the Work has none.
func ManifestOf(w *v1alpha1.Work) (*unstructured.Unstructured, error) {
	if len(w.Spec.Manifests) == 0 {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return nil, fmt.Errorf("decode manifest of Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	return o, nil
}

// RequestedReplicas returns how many replicas a Work's manifest requests, and whether its kind has
// replicas.
func RequestedReplicas(w *v1alpha1.Work) (n int32, ok bool) {
	o, err := ManifestOf(w)
	if err != nil || o == nil {
		return 0, false
	}
	return render.Replicas(o)
}

// worksNamed returns the Works of one object, by cluster.
func worksNamed(ctx context.Context, cached client.Reader, name string) (map[string]*v1alpha1.Work, error) {
	var list v1alpha1.WorkList
	if err := cached.List(ctx, &list, client.MatchingFields{workNameIndex: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Works %s: %w", name, err)
	}
	works := map[string]*v1alpha1.Work{}
	for i := range list.Items {
		if cluster, ok := kinds.ClusterOfNamespace(list.Items[i].Namespace); ok {
			works[cluster] = &list.Items[i]
		}
	}
	return works, nil
}
