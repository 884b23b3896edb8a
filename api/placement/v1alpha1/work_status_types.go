// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// WorkStatus is what the cluster has.
type WorkStatus struct {
	// Conditions: Applied, Ready. Applied is False with the reason Ordered when an
	// order for removal is carried out: then the hub deletes the Work. It is False with the
	// reason HubMismatch while Halted is there.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Term of the spec that the agent has last carried out.
	// +optional
	Term int64 `json:"term,omitempty"`

	// Revision of the spec that the agent has last carried out.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Halted says why the agent does not carry out the spec.
	// +optional
	Halted *HaltedWork `json:"halted,omitempty"`

	// Manifests have an entry each, in the order of the spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Manifests []ManifestStatus `json:"manifests,omitempty"`
}

// HaltedWork says how a Work and its cluster's record differ.
type HaltedWork struct {
	// Record names the state of the record, for ResumeAnnotation:
	// "<hub UID>/<epoch>/<term>/<revision>". Empty when the cluster has no record: the Work
	// waits until no other Work of the cluster is halted.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Record string `json:"record,omitempty"`

	// Work names the state of the Work that the agent has compared with the record. Empty when
	// the cluster has no record.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Work string `json:"work,omitempty"`

	// Differences are fields that the Work would change in the cluster, at most 20, such as
	// "Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Differences []string `json:"differences,omitempty"`
}

// ManifestStatus is what the cluster has of one manifest.
type ManifestStatus struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object in the cluster, also of one that the cluster has lost; empty when there is none of ours.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// Generation of the object in the cluster, read together with Status.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// AppliedGeneration is the object's generation in the cluster right after the
	// agent last applied SourceGeneration there: a status whose observedGeneration is
	// not smaller speaks of SourceGeneration.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`

	// SourceGeneration is the generation of the source that was last applied.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// Replicas is the object's spec.replicas in the cluster, whoever set it.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// VolumeClaims are PersistentVolumeClaims, as namespace/name, that Pods of the object use or
	// have used, and that are still there. Whoever made them may delete them with the object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	VolumeClaims []string `json:"volumeClaims,omitempty"`

	// Truncated says that Status has only conditions and counts: the whole would be larger
	// than MaxStatusBytes.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// Status of the object, exactly.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Ready says that the object is ready, as kstatus computes it.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// Conditions: Applied, with the reason Conflict, Refused or the API server's, and a
	// message that names object and field.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Associated objects.
	// +optional
	Associated *Associated `json:"associated,omitempty"`
}
