// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Assignment says where one object at the hub runs, and what each cluster reports of
// it. The hub writes it; nobody else does. It stands in the object's namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.object.kind`
// +kubebuilder:printcolumn:name=Object,type=string,JSONPath=`.spec.object.name`
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name=Placed,type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].reason`
// +kubebuilder:printcolumn:name=Blocked,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="MoveBlocked")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Assignment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the decision. Every change of it is one write.
	Spec AssignmentSpec `json:"spec"`

	// Status is what the clusters report.
	// +optional
	Status AssignmentStatus `json:"status,omitempty"`
}

// AssignmentSpec is a decision.
type AssignmentSpec struct {
	// Object that is placed.
	Object ObjectReference `json:"object"`

	// Decision is what the targets were decided from. While it stays the same, a
	// replica stays where it is.
	// +optional
	Decision Decision `json:"decision,omitempty"`

	// Targets are the clusters that have, or are to have, the object, each once. The list has
	// one owner in server-side apply: managedFields would list 500 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Targets []Target `json:"targets,omitempty"`

	// Follows are the objects that go where this one is. They have Assignments of
	// their own, in the same namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Follows []FollowReference `json:"follows,omitempty"`
}

// FollowReference names an object of the same namespace that a placed one needs.
type FollowReference struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Name of the object.
	Name string `json:"name"`
}

// Decision is what targets were decided from.
type Decision struct {
	// Source of the decision: "annotation", "Placement <namespace>/<name>",
	// "ClusterPlacement <name>" or "followed".
	// +optional
	Source string `json:"source,omitempty"`

	// Digest of the wishes: clusters, weights, bounds and mode.
	// +optional
	Digest string `json:"digest,omitempty"`

	// Number of the decision; it grows whenever what is wanted changes.
	// +optional
	Number int64 `json:"number,omitempty"`

	// Since is when what is wanted last changed: deadlines of moves count from it.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`

	// Requests of the Pod of one replica; with them the limits of clusters are kept.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// PolicyUID is the UID of the policy in Source. A policy of the same name that was made
	// anew is another one.
	// +optional
	PolicyUID types.UID `json:"policyUID,omitempty"`

	// AnnotatedPolicyUID is the UID of the policy that says the rest where the annotation names
	// the clusters.
	// +optional
	AnnotatedPolicyUID types.UID `json:"annotatedPolicyUID,omitempty"`

	// AnnotationDigest is of the annotation that AnnotatedPolicyUID is beneath.
	// +optional
	AnnotationDigest string `json:"annotationDigest,omitempty"`

	// OnDelete is frozen here, so that an object whose policy is gone is still removed
	// as the policy said.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`
}

// AssignmentList is a list of Assignments.
// +kubebuilder:object:root=true
type AssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Assignment `json:"items"`
}
