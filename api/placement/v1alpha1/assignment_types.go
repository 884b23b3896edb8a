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

	// Dependencies are the objects that go where this one is. They have Assignments of
	// their own, in the same namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Dependencies []DependencyReference `json:"dependencies,omitempty"`
}

// ObjectReference names an object and its present life.
type ObjectReference struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Version of the kind.
	Version string `json:"version"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Resource is the kind's plural in lower case, as in URLs.
	Resource string `json:"resource"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object.
	UID types.UID `json:"uid"`
}

// DependencyReference names an object of the same namespace that a placed one needs.
type DependencyReference struct {
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
	// "ClusterPlacement <name>" or "dependency".
	// +optional
	Source string `json:"source,omitempty"`

	// Digest of the wishes: clusters, weights, bounds and mode.
	// +optional
	Digest string `json:"digest,omitempty"`

	// Number of the decision; it grows whenever what is wanted changes.
	// +optional
	Number int64 `json:"number,omitempty"`

	// LastChangeTime is when what is wanted last changed: deadlines of moves count from it.
	// +optional
	LastChangeTime *metav1.MicroTime `json:"lastChangeTime,omitempty"`

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

// TargetState is where a cluster stands in a move.
// +kubebuilder:validation:Enum=Pending;Active;Draining;Removing
type TargetState string

// States of a target.
const (
	// TargetPending: the cluster is to have the object when it is its turn, and has no
	// Work yet.
	TargetPending TargetState = "Pending"
	// TargetActive: the cluster has a Work with the object.
	TargetActive TargetState = "Active"
	// TargetDraining: the cluster is to lose the object, and still serves.
	TargetDraining TargetState = "Draining"
	// TargetRemoving: the order to remove the object there is given.
	TargetRemoving TargetState = "Removing"
)

// Target is one cluster of an Assignment.
type Target struct {
	// Cluster by name.
	Cluster ClusterName `json:"cluster"`

	// Replicas that the cluster is to have in the end; absent for kinds without.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// RequestedReplicas is how many replicas are asked of the cluster now: the mover brings it
	// to Replicas step by step.
	// +optional
	RequestedReplicas *int32 `json:"requestedReplicas,omitempty"`

	// State in a move.
	State TargetState `json:"state"`

	// LastTransitionTime is when the state, or Asked, last changed.
	// +optional
	LastTransitionTime *metav1.MicroTime `json:"lastTransitionTime,omitempty"`
}

// AssignmentStatus is what the clusters report of one object.
type AssignmentStatus struct {
	// Conditions: Placed, Rendered, MoveBlocked.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Summary of the targets in one line, for tables: each cluster with the replicas
	// that it is asked for, and its state unless that is Active.
	// +optional
	Summary string `json:"summary,omitempty"`

	// Clusters have a row each. The list has one owner in server-side apply: managedFields
	// would list 500 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Clusters []ClusterReport `json:"clusters,omitempty"`

	// Truncated says that messages and broken Pods were left out, as the whole would be
	// larger than MaxObjectBytes.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// ObservedGeneration is the Assignment's generation that this speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ClusterReport is what one cluster reports of one object.
type ClusterReport struct {
	// Cluster by name.
	Cluster ClusterName `json:"cluster"`

	// Term of the cluster's Work when this was written.
	// +optional
	Term int64 `json:"term,omitempty"`

	// Revision of the cluster's Work when this was written. A Work that was lost
	// starts well above it.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Applied says that the cluster has the present Work.
	Applied bool `json:"applied"`

	// Ready says that the object is ready there, as kstatus computes it.
	Ready bool `json:"ready"`

	// Replicas that are there, and how many of them are ready and available; absent
	// for kinds without.
	// +optional
	Replicas *ReplicaCounts `json:"replicas,omitempty"`

	// Message says what is wrong there.
	// +optional
	Message string `json:"message,omitempty"`

	// Associated objects there.
	// +optional
	Associated *Associated `json:"associated,omitempty"`
}

// ReplicaCounts counts replicas in one cluster.
type ReplicaCounts struct {
	// Total that exist.
	// +optional
	Total int32 `json:"total,omitempty"`

	// Ready of them.
	// +optional
	Ready int32 `json:"ready,omitempty"`

	// Available of them: ready for minReadySeconds.
	// +optional
	Available int32 `json:"available,omitempty"`
}

// Associated counts objects that controllers made for a placed one, found by their
// ownerReferences.
type Associated struct {
	// Pods by phase, such as Running, or by the reason why they wait, such as
	// CrashLoopBackOff.
	// +optional
	// +mapType=atomic
	Pods map[string]int32 `json:"pods,omitempty"`

	// Broken are at most 20 Pods that do not get on, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Broken []BrokenPod `json:"broken,omitempty"`
}

// BrokenPod is a Pod that does not get on.
type BrokenPod struct {
	// Name of the Pod.
	Name string `json:"name"`

	// Reason, such as CrashLoopBackOff or Unschedulable.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message, at most 256 bytes.
	// +optional
	Message string `json:"message,omitempty"`
}

// AssignmentList is a list of Assignments.
// +kubebuilder:object:root=true
type AssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Assignment `json:"items"`
}
