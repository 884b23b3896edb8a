// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
