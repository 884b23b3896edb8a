// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplicaMode is how clusters share an object's replicas.
// +kubebuilder:validation:Enum=Duplicate;Divide;Single
type ReplicaMode string

// Modes of replicas.
const (
	// ReplicasDuplicate: each cluster gets the object with all its replicas.
	ReplicasDuplicate ReplicaMode = "Duplicate"
	// ReplicasDivide: the clusters share the object's replicas.
	ReplicasDivide ReplicaMode = "Divide"
	// ReplicasSingle: one cluster gets the object.
	ReplicasSingle ReplicaMode = "Single"
)

// DivideBy is the criterion by which replicas are divided.
// +kubebuilder:validation:Enum=Static;Available
type DivideBy string

// Criteria by which replicas are divided.
const (
	// DivideStatic divides by weights.
	DivideStatic DivideBy = "Static"
	// DivideAvailable divides by the room of the clusters.
	DivideAvailable DivideBy = "Available"
)

// ReplicaPolicy is how clusters share the replicas of an object.
// +kubebuilder:validation:XValidation:rule=`!has(self.by) || self.by != "Available" || !has(self.weights)`,fieldPath=`.by`,reason=FieldValueForbidden,message=`must be Static with weights: Available divides by the room of the clusters`
type ReplicaPolicy struct {
	// Mode is how clusters share the replicas. Default: Divide for Deployments and ReplicaSets, Single for
	// StatefulSets, Jobs, CronJobs, Pods and PersistentVolumeClaims, Duplicate for other kinds. For kinds without
	// replicas Divide is the same as Duplicate. For Jobs it divides parallelism and completions, once.
	// +optional
	Mode ReplicaMode `json:"mode,omitempty"`

	// Weights of clusters by name. Without any weights each cluster has weight 1; else a cluster that is
	// not named has weight 0.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Weights map[string]Weight `json:"weights,omitempty"`

	// Min is the minimum of replicas in each cluster by name, as far as the object has enough replicas.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Min map[string]Replicas `json:"min,omitempty"`

	// Max is the maximum of replicas in each cluster by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Max map[string]Replicas `json:"max,omitempty"`

	// By is the criterion by which the replicas are divided: by weights, or by the room that each cluster has,
	// with what the object has there. A cluster that reports no room, and has no limits, counts as the one with
	// the most room. Replicas that have a cluster stay there when the room changes.
	// +optional
	// +kubebuilder:default=Static
	By DivideBy `json:"by,omitempty"`
}

// Weight of a cluster in a division.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type Weight int32

// Replicas of an object in a cluster.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type Replicas int32

// MoveMode is the order in which a move scales up and down.
// +kubebuilder:validation:Enum=MakeBeforeBreak;BreakBeforeMake
type MoveMode string

// Modes of a move.
const (
	// MakeBeforeBreak scales down only replicas that have a replacement.
	MakeBeforeBreak MoveMode = "MakeBeforeBreak"
	// BreakBeforeMake scales up only after the old replicas are gone: for workloads that must not run
	// twice.
	BreakBeforeMake MoveMode = "BreakBeforeMake"
)

// OnDeadline is what happens to a move at its deadline.
// +kubebuilder:validation:Enum=Hold;Proceed
type OnDeadline string

// What happens to a move at its deadline.
const (
	// DeadlineHold keeps waiting.
	DeadlineHold OnDeadline = "Hold"
	// DeadlineProceed scales down although the replacement is not ready.
	DeadlineProceed OnDeadline = "Proceed"
)

// MovePolicy is how objects move from cluster to cluster.
type MovePolicy struct {
	// Mode is the order of a move. Default: MakeBeforeBreak; BreakBeforeMake for StatefulSets, CronJobs, Jobs and
	// Pods. MakeBeforeBreak applies to StatefulSets and CronJobs only if Objects names their kind, and never to Jobs
	// and Pods, which do not move once they have started.
	// +optional
	Mode MoveMode `json:"mode,omitempty"`

	// Surge is how many more replicas than desired may exist during a move, as a number or a percentage,
	// rounded up. Default: 100%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[0-9]{1,9}%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage such as "25%"`
	Surge *intstr.IntOrString `json:"surge,omitempty"`

	// Unavailable is how many of the desired replicas may be unavailable during a move, as a number or a
	// percentage, rounded down. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^([0-9]|[1-9][0-9]|100)%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage from "0%" to "100%"`
	Unavailable *intstr.IntOrString `json:"unavailable,omitempty"`

	// Settle is how long a cluster keeps the object without replicas before its removal, such as "90s", so
	// that endpoints and connections can end. Default: 0s.
	// +optional
	Settle *metav1.Duration `json:"settle,omitempty"`

	// Stable is how long replicas must be available by the reports of a cluster before these replicas replace
	// others, such as "30s". It is the time between two reports; 0s trusts one report. At most 10m. Default: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[0-9.hmsuµn]+$') || duration(self) <= duration('10m')`,message=`must be at most 10m`
	Stable *metav1.Duration `json:"stable,omitempty"`

	// Deadline of a move, such as "10m" or "1h30m". Default: none.
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// OnDeadline is what happens at the deadline.
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
}

// OfflinePolicy is when an unreachable cluster counts as lost.
type OfflinePolicy struct {
	// AssumeLostAfter is how long a cluster must be unreachable before the hub places its replicas in other
	// clusters, such as "10m"; at least 20s. Default: never, because an unreachable cluster may still run them. It does not
	// apply while more than a third of the clusters is unreachable, nor to objects that must run in one cluster at
	// a time (replicas.mode Single or move.mode BreakBeforeMake): see kubectl patchbay cluster declare-lost.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[0-9.hmsuµn]+$') || duration(self) >= duration('20s')`,message=`must be at least 20s`
	AssumeLostAfter *metav1.Duration `json:"assumeLostAfter,omitempty"`
}

// StatusMode is how the hub computes the status of an object.
// +kubebuilder:validation:Enum=Auto;Summary;None
type StatusMode string

// Modes of status.
const (
	// StatusAuto: the exact status of one cluster, or a summary of several.
	StatusAuto StatusMode = "Auto"
	// StatusSummary: a summary, also of one cluster.
	StatusSummary StatusMode = "Summary"
	// StatusNone: the hub writes no status.
	StatusNone StatusMode = "None"
)

// AssociatedMode is what agents report of objects that controllers in a cluster created.
// +kubebuilder:validation:Enum=Counts;Mirror;None
type AssociatedMode string

// Modes of associated objects.
const (
	// AssociatedCounts: the number of Pods by phase and reason, and the broken Pods.
	AssociatedCounts AssociatedMode = "Counts"
	// AssociatedMirror: copies of the Pods at the hub; not served yet.
	AssociatedMirror AssociatedMode = "Mirror"
	// AssociatedNone: nothing.
	AssociatedNone AssociatedMode = "None"
)

// StatusPolicy is what clusters report to the hub.
// +kubebuilder:validation:XValidation:rule=`!has(self.associated) || self.associated != "Mirror"`,fieldPath=`.associated`,reason=FieldValueForbidden,message=`mirroring associated objects is not served yet: use Counts`
type StatusPolicy struct {
	// Mode of the object's own status.
	// +optional
	// +kubebuilder:default=Auto
	Mode StatusMode `json:"mode,omitempty"`

	// Associated objects, found by their ownerReferences.
	// +optional
	// +kubebuilder:default=Counts
	Associated AssociatedMode `json:"associated,omitempty"`
}

// ConflictMode is what happens when an object in the cluster, or a field of it, has another owner.
// +kubebuilder:validation:Enum=Refuse;Adopt;Force
type ConflictMode string

// Modes of conflict.
const (
	// ConflictRefuse leaves objects that the agent did not create, and fields of other owners, unchanged,
	// and reports the conflict.
	ConflictRefuse ConflictMode = "Refuse"
	// ConflictAdopt adopts existing objects, but takes no fields of other owners.
	ConflictAdopt ConflictMode = "Adopt"
	// ConflictForce adopts existing objects, and takes fields of other owners.
	ConflictForce ConflictMode = "Force"
)

// FieldPath is the path of a field, such as "spec.replicas". A key that contains a dot is quoted:
// `metadata.annotations["example.com/a"]`.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
type FieldPath string

// ApplyPolicy is how agents apply objects in clusters.
type ApplyPolicy struct {
	// Conflict is what happens when the object, or a field of it, has another owner.
	// +optional
	// +kubebuilder:default=Refuse
	Conflict ConflictMode `json:"conflict,omitempty"`

	// CreateOnly are fields that the agent sets when it creates the object, and then leaves to others.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	CreateOnly []FieldPath `json:"createOnly,omitempty"`

	// Yield are fields that the agent leaves to others as soon as another field manager owns them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Yield []FieldPath `json:"yield,omitempty"`
}

// YieldsReplicas tells whether the agent leaves spec.replicas to an autoscaler.
func (p *ApplyPolicy) YieldsReplicas() bool { return slices.Contains(p.Yield, "spec.replicas") }

// OnDelete is what happens to the objects in clusters.
// +kubebuilder:validation:Enum=Delete;Orphan
type OnDelete string

// What happens on deletion.
const (
	// OnDeleteDelete deletes them.
	OnDeleteDelete OnDelete = "Delete"
	// OnDeleteOrphan keeps them, no longer managed by the agent.
	OnDeleteOrphan OnDelete = "Orphan"
)

// OnUnselected is what happens in clusters to an object that its policy no longer selects.
// +kubebuilder:validation:Enum=Keep;Remove
type OnUnselected string

// What happens to an object that its policy no longer selects.
const (
	// OnUnselectedKeep keeps it in its clusters.
	OnUnselectedKeep OnUnselected = "Keep"
	// OnUnselectedRemove removes it from its clusters, according to OnDelete.
	OnUnselectedRemove OnUnselected = "Remove"
)

// VolumePolicy is what happens to volumes in a move.
// +kubebuilder:validation:Enum=Refuse;Transfer;Recreate
// +kubebuilder:validation:XValidation:rule=`self != "Recreate"`,reason=FieldValueForbidden,message=`starting with empty volumes is not served yet: use Refuse or Transfer`
type VolumePolicy string

// What happens to volumes in a move.
const (
	// VolumesRefuse rejects moves of objects with volumes of their own.
	VolumesRefuse VolumePolicy = "Refuse"
	// VolumesTransfer gives the volume of a PersistentVolumeClaim to the cluster that the objects move to.
	VolumesTransfer VolumePolicy = "Transfer"
	// VolumesRecreate starts with empty volumes; not served yet.
	VolumesRecreate VolumePolicy = "Recreate"
)
