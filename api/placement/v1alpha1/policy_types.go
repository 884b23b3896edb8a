// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplicaMode says what each cluster gets of an object's replicas.
// +kubebuilder:validation:Enum=Duplicate;Divide;Single
type ReplicaMode string

// Modes of replicas.
const (
	// ReplicasDuplicate: every cluster gets the object as it is.
	ReplicasDuplicate ReplicaMode = "Duplicate"
	// ReplicasDivide: the clusters share the object's replicas.
	ReplicasDivide ReplicaMode = "Divide"
	// ReplicasSingle: one cluster gets the object.
	ReplicasSingle ReplicaMode = "Single"
)

// DivideBy says by what replicas are divided.
// +kubebuilder:validation:Enum=Static;Available
type DivideBy string

// What replicas are divided by.
const (
	// DivideStatic divides by weights.
	DivideStatic DivideBy = "Static"
	// DivideAvailable divides by free room; not served yet.
	DivideAvailable DivideBy = "Available"
)

// ReplicaPolicy says how replicas are divided.
// +kubebuilder:validation:XValidation:rule=`!has(self.by) || self.by != "Available"`,fieldPath=`.by`,reason=FieldValueForbidden,message=`dividing by available room is not served yet: use Static`
type ReplicaPolicy struct {
	// Mode. Default: Divide for Deployments and ReplicaSets, Single for StatefulSets,
	// Jobs, Pods and PersistentVolumeClaims, Duplicate for all else. Kinds without replicas
	// take Divide as Duplicate; a Job's parallelism and completions are divided.
	// +optional
	Mode ReplicaMode `json:"mode,omitempty"`

	// Weights of clusters by name; one that is not named has weight 1 if none is,
	// else 0.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Weights map[string]Weight `json:"weights,omitempty"`

	// Min replicas in each cluster by name, as long as there are enough.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Min map[string]Replicas `json:"min,omitempty"`

	// Max replicas in each cluster by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Max map[string]Replicas `json:"max,omitempty"`

	// By what the replicas are divided.
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

// MoveMode says in which order a move grows and shrinks.
// +kubebuilder:validation:Enum=MakeBeforeBreak;BreakBeforeMake
type MoveMode string

// Modes of a move.
const (
	// MakeBeforeBreak shrinks only what has a replacement.
	MakeBeforeBreak MoveMode = "MakeBeforeBreak"
	// BreakBeforeMake starts nothing before what is to go has gone: for workloads
	// that must not run twice.
	BreakBeforeMake MoveMode = "BreakBeforeMake"
)

// OnDeadline says what happens to a move that takes too long.
// +kubebuilder:validation:Enum=Hold;Proceed
type OnDeadline string

// What happens to a move at its deadline.
const (
	// DeadlineHold waits on.
	DeadlineHold OnDeadline = "Hold"
	// DeadlineProceed shrinks though the replacement is not there.
	DeadlineProceed OnDeadline = "Proceed"
)

// MovePolicy says how objects go from cluster to cluster.
type MovePolicy struct {
	// Mode. Default: MakeBeforeBreak; BreakBeforeMake for StatefulSets and Jobs.
	// +optional
	Mode MoveMode `json:"mode,omitempty"`

	// Surge is how many replicas more than desired there may be during a move, as a
	// number or a percentage, rounded up. Default: 100%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^[0-9]{1,9}%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage such as "25%"`
	Surge *intstr.IntOrString `json:"surge,omitempty"`

	// Unavailable is how many of the desired replicas may be missing during a move,
	// as a number or a percentage, rounded down. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self.matches('^([0-9]|[1-9][0-9]|100)%$') : type(self) == int && self >= 0 && self <= 1000000`,message=`must be a number from 0 to 1000000, or a percentage from "0%" to "100%"`
	Unavailable *intstr.IntOrString `json:"unavailable,omitempty"`

	// Settle is how long a cluster keeps the object without replicas before it is
	// removed there, in which endpoints and connections go, such as "90s". Default: 0s.
	// +optional
	Settle *metav1.Duration `json:"settle,omitempty"`

	// Deadline of a move, such as "10m" or "1h30m". Default: none.
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// OnDeadline says what happens then.
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
}

// OfflinePolicy says when an unreachable cluster counts as lost.
type OfflinePolicy struct {
	// AssumeLostAfter is how long a cluster is unreachable before its replicas are
	// placed elsewhere, such as "10m". Absent: never, because unreachable is not lost.
	// +optional
	AssumeLostAfter *metav1.Duration `json:"assumeLostAfter,omitempty"`
}

// StatusMode says how statuses are brought together.
// +kubebuilder:validation:Enum=Auto;Summary;None
type StatusMode string

// Modes of status.
const (
	// StatusAuto: the exact status of one cluster, the summary of several.
	StatusAuto StatusMode = "Auto"
	// StatusSummary: a summary, also of one cluster.
	StatusSummary StatusMode = "Summary"
	// StatusNone: the hub writes no status.
	StatusNone StatusMode = "None"
)

// AssociatedMode says what comes back of objects that controllers in a cluster made.
// +kubebuilder:validation:Enum=Counts;Mirror;None
type AssociatedMode string

// Modes of associated objects.
const (
	// AssociatedCounts: how many there are by phase and reason, and the broken Pods.
	AssociatedCounts AssociatedMode = "Counts"
	// AssociatedMirror: the Pods themselves, to be read at the hub; not served yet.
	AssociatedMirror AssociatedMode = "Mirror"
	// AssociatedNone: nothing.
	AssociatedNone AssociatedMode = "None"
)

// StatusPolicy says what comes back to the hub.
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

// ConflictMode says what happens when the object, or a field of it, belongs to
// somebody else in the cluster.
// +kubebuilder:validation:Enum=Refuse;Adopt;Force
type ConflictMode string

// Modes of conflict.
const (
	// ConflictRefuse leaves an object that the agent did not make alone, and fields of
	// other owners too, and says so.
	ConflictRefuse ConflictMode = "Refuse"
	// ConflictAdopt takes over objects that were there, but no fields of others.
	ConflictAdopt ConflictMode = "Adopt"
	// ConflictForce takes over objects and fields.
	ConflictForce ConflictMode = "Force"
)

// FieldPath names a field by dots, such as "spec.replicas"; a key that contains a
// dot is quoted: `metadata.annotations["example.com/a"]`.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
type FieldPath string

// ApplyPolicy says how objects are written in clusters.
type ApplyPolicy struct {
	// Conflict says what happens when something belongs to somebody else.
	// +optional
	// +kubebuilder:default=Refuse
	Conflict ConflictMode `json:"conflict,omitempty"`

	// CreateOnly fields are written when the object is created, and then left to
	// whoever is there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	CreateOnly []FieldPath `json:"createOnly,omitempty"`

	// Yield fields are left to others as soon as another manager owns them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Yield []FieldPath `json:"yield,omitempty"`
}

// OnDelete says what happens to the objects in clusters.
// +kubebuilder:validation:Enum=Delete;Orphan
type OnDelete string

// What happens on deletion.
const (
	// OnDeleteDelete deletes them.
	OnDeleteDelete OnDelete = "Delete"
	// OnDeleteOrphan keeps them, without owner.
	OnDeleteOrphan OnDelete = "Orphan"
)

// OnUnselected says what happens in clusters to an object that its policy no longer selects.
// +kubebuilder:validation:Enum=Keep;Remove
type OnUnselected string

// What happens to an object that its policy no longer selects.
const (
	// OnUnselectedKeep keeps it in its clusters.
	OnUnselectedKeep OnUnselected = "Keep"
	// OnUnselectedRemove removes it from them, as OnDelete says.
	OnUnselectedRemove OnUnselected = "Remove"
)

// VolumePolicy says what happens to volumes in a move.
// +kubebuilder:validation:Enum=Refuse;Transfer;Recreate
// +kubebuilder:validation:XValidation:rule=`self == "Refuse"`,reason=FieldValueForbidden,message=`moving volumes is not served yet: use Refuse`
type VolumePolicy string

// What happens to volumes in a move.
const (
	// VolumesRefuse refuses to move what has volumes of its own.
	VolumesRefuse VolumePolicy = "Refuse"
	// VolumesTransfer moves the data along; not served yet.
	VolumesTransfer VolumePolicy = "Transfer"
	// VolumesRecreate starts with empty volumes; not served yet.
	VolumesRecreate VolumePolicy = "Recreate"
)
