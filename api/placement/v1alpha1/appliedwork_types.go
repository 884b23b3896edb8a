// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AppliedWork is the agent's record of one Work, in its own cluster. With it the agent repairs objects and
// restarts while the hub is unreachable. It has the name of the Work.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.work.source.kind`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.work.source.namespace`
// +kubebuilder:printcolumn:name=Object,type=string,JSONPath=`.spec.work.source.name`
// +kubebuilder:printcolumn:name=Revision,type=integer,JSONPath=`.spec.work.revision`
// +kubebuilder:printcolumn:name=Orphaned,type=string,JSONPath=`.status.conditions[?(@.type=="Orphaned")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type AppliedWork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the Work as the agent recorded it last.
	Spec AppliedWorkSpec `json:"spec"`

	// Status has the objects of the Work in the cluster.
	// +optional
	Status AppliedWorkStatus `json:"status,omitempty"`
}

// AppliedWorkSpec is the Work as the agent recorded it last.
type AppliedWorkSpec struct {
	// Work is the spec of the Work, with its manifests.
	Work WorkSpec `json:"work"`
}

// AppliedWorkStatus has the objects of a Work in the cluster.
type AppliedWorkStatus struct {
	// Conditions: Applied, Orphaned, HubMismatch.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Revision of the Work that the agent carried out last.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Objects that the agent created or adopted, with their UIDs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Objects []AppliedObject `json:"objects,omitempty"`
}

// AppliedObject is an object that the agent created or adopted.
type AppliedObject struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Version of the kind.
	Version string `json:"version"`

	// Resource is the plural name of the kind in lower case.
	Resource string `json:"resource"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object in the cluster. It is the precondition of a deletion.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// AppliedGeneration is the object's generation after the apply of SourceGeneration.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`

	// SourceGeneration is the generation of the source that the agent applied last.
	// +optional
	SourceGeneration int64 `json:"sourceGeneration,omitempty"`

	// Creating is true before the agent creates an object that runs once, such as a Job, until UID is recorded.
	// An agent that restarts in between does not create it again.
	// +optional
	Creating bool `json:"creating,omitempty"`

	// Replicas of the manifest that the agent applied last, if apply.yield leaves them to autoscalers; none in a move
	// of such an object. The agent so finds out whether a user has changed them since.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}

// AppliedWorkList is a list of AppliedWorks.
// +kubebuilder:object:root=true
type AppliedWorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []AppliedWork `json:"items"`
}
