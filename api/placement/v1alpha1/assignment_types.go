// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Assignment is the clusters where one object of the hub runs, and what each cluster reports of it. Only
// patchbay-hub writes it. It is in the object's namespace.
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

	// Spec is the decision. Each change of it is one write.
	Spec AssignmentSpec `json:"spec"`

	// Status has the reports of the clusters.
	// +optional
	Status AssignmentStatus `json:"status,omitempty"`
}

// AssignmentSpec is the decision where an object runs.
type AssignmentSpec struct {
	// Object that is placed.
	Object ObjectReference `json:"object"`

	// Decision is what the targets were decided from. A replica stays where it is as long as the decision
	// stays the same.
	// +optional
	Decision Decision `json:"decision,omitempty"`

	// Targets are the clusters that have the object, or will have it, each once. The list is atomic in
	// server-side apply, because managedFields would list each of 500 targets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Targets []Target `json:"targets,omitempty"`

	// Dependencies are the objects that are placed with this one. They have Assignments of their own, in
	// the same namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Dependencies []DependencyReference `json:"dependencies,omitempty"`

	// Volume is where the volume of a PersistentVolumeClaim is, once it has begun to move.
	// +optional
	Volume *VolumeTransfer `json:"volume,omitempty"`
}

// ObjectReference identifies an object, with its UID.
type ObjectReference struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Version of the kind.
	Version string `json:"version"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Resource is the plural name of the kind in lower case, as in URLs.
	Resource string `json:"resource"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object.
	UID types.UID `json:"uid"`
}

// DependencyReference identifies an object in the same namespace that a placed object needs.
type DependencyReference struct {
	// Group of the kind; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Name of the object.
	Name string `json:"name"`
}

// Decision is what the targets were decided from.
type Decision struct {
	// Source of the decision: "annotation", "Placement <namespace>/<name>",
	// "ClusterPlacement <name>" or "dependency".
	// +optional
	Source string `json:"source,omitempty"`

	// Digest of the effective policy: clusters, weights, bounds and mode.
	// +optional
	Digest string `json:"digest,omitempty"`

	// Number of the decision. It increases when the desired targets change.
	// +optional
	Number int64 `json:"number,omitempty"`

	// LastChangeTime is when the desired targets last changed. Deadlines of moves count from it.
	// +optional
	LastChangeTime *metav1.MicroTime `json:"lastChangeTime,omitempty"`

	// Requests of the Pod of one replica. The hub checks the limits of clusters with them.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// PolicyUID is the UID of the policy in Source. A policy that was deleted and created again is another
	// policy.
	// +optional
	PolicyUID types.UID `json:"policyUID,omitempty"`

	// AnnotatedPolicyUID is the UID of the policy that applies besides the annotation, which names the
	// clusters.
	// +optional
	AnnotatedPolicyUID types.UID `json:"annotatedPolicyUID,omitempty"`

	// AnnotationDigest is the digest of the annotation that AnnotatedPolicyUID belongs to.
	// +optional
	AnnotationDigest string `json:"annotationDigest,omitempty"`

	// OnDelete of the policy, so that it still applies when the policy is gone.
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`

	// StartedIn are the clusters in which an object that runs once, such as a Job, has started or may have. It
	// does not start in other clusters, nor again in one of these that has removed it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	StartedIn []ClusterName `json:"startedIn,omitempty"`

	// Rollbacks is how often the move to the present targets gave replicas back to a cluster that was to lose
	// them. Each one doubles move.stable, from 1 s up to 10 minutes.
	// +optional
	Rollbacks int32 `json:"rollbacks,omitempty"`

	// AutoscaledReplicas are the replicas that are wanted in a move of an object whose spec.replicas is left to
	// autoscalers: what they requested when the move began, in all clusters, and what they have added since. If each
	// cluster has the whole object, it is the most that one of them requested. 0 when no such move is under way:
	// then spec.replicas of the object counts.
	// +optional
	AutoscaledReplicas int32 `json:"autoscaledReplicas,omitempty"`

	// Refusals are clusters that did not run all replicas that the hub requested. Until RetryTime they get no
	// more replicas than they run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Refusals []Refusal `json:"refusals,omitempty"`

	// RebalanceDigest is the digest of the object's annotation placement.patchbay.io/rebalance when the hub last
	// divided the replicas again for it.
	// +optional
	RebalanceDigest string `json:"rebalanceDigest,omitempty"`
}

// Refusal is a cluster that did not run all replicas that the hub requested.
type Refusal struct {
	// Cluster is the name of the Cluster.
	Cluster ClusterName `json:"cluster"`

	// Replicas that the cluster ran, or was starting: it gets no more until RetryTime.
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// RetryTime is when the cluster may get more replicas again. Replicas do not move back by themselves.
	RetryTime metav1.MicroTime `json:"retryTime"`

	// Count of refusals in a row. Each one doubles the time until RetryTime, from 5 minutes up to an hour.
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
}

// TargetState is the state of a cluster in a move.
// +kubebuilder:validation:Enum=Pending;Active;Draining;Removing;Lost
type TargetState string

// States of a target.
const (
	// TargetPending: the cluster will get the object later in the move, and has no Work yet.
	TargetPending TargetState = "Pending"
	// TargetActive: the cluster has a Work with the object.
	TargetActive TargetState = "Active"
	// TargetDraining: the cluster will lose the object, and still runs it.
	TargetDraining TargetState = "Draining"
	// TargetRemoving: the hub has ordered the removal of the object.
	TargetRemoving TargetState = "Removing"
	// TargetLost: the cluster does not report, and is assumed or declared lost; others replace it. It gets no order
	// until it reports again. Then it becomes Draining, or Active if it is to have the object again.
	TargetLost TargetState = "Lost"
)

// Target is one cluster of an Assignment.
type Target struct {
	// Cluster is the name of the Cluster.
	Cluster ClusterName `json:"cluster"`

	// Replicas that the cluster has after the move; absent for kinds without replicas.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// RequestedReplicas are the replicas that the hub requests of the cluster now. A move changes them to
	// Replicas step by step.
	// +optional
	RequestedReplicas *int32 `json:"requestedReplicas,omitempty"`

	// FallbackReplicas are the replicas that the cluster had when it began to lose them, without those that were
	// known to be unavailable. Until it has removed the object, the hub requests up to this many of it again when
	// replicas fail in the other clusters.
	// +optional
	FallbackReplicas *int32 `json:"fallbackReplicas,omitempty"`

	// State of the cluster in a move.
	State TargetState `json:"state"`

	// LastTransitionTime is when State or RequestedReplicas last changed.
	// +optional
	LastTransitionTime *metav1.MicroTime `json:"lastTransitionTime,omitempty"`

	// AutoscaledReplicas are the most replicas that an autoscaler, or the hub, has requested of the cluster in a move
	// of the decision's autoscaledReplicas. What an autoscaler requests beyond them is added to those. If each cluster
	// has the whole object, only those that have had it since before the move have this field.
	// +optional
	AutoscaledReplicas *int32 `json:"autoscaledReplicas,omitempty"`

	// Returned is true when the cluster was lost, and reports again. It takes nothing back of what other clusters
	// have got meanwhile.
	// +optional
	Returned bool `json:"returned,omitempty"`

	// TrafficWithdrawnTime is when the hub began to withdraw the endpoints of the object's Pods in this cluster from
	// the Services of other clusters, because the Pods are about to leave. While it is set, the hub adds none of them.
	// +optional
	TrafficWithdrawnTime *metav1.MicroTime `json:"trafficWithdrawnTime,omitempty"`
}

// AssignmentStatus has the clusters' reports of one object.
type AssignmentStatus struct {
	// Conditions: Placed, Rendered, MoveBlocked, and for a Service on a stretched ClusterNetwork TrafficMerged.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Summary of the targets in one line, for tables: each cluster with its requested replicas, and its
	// state unless that is Active.
	// +optional
	Summary string `json:"summary,omitempty"`

	// Clusters has an entry for each cluster. The list is atomic in server-side apply, because managedFields
	// would list each of 500 entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Clusters []ClusterReport `json:"clusters,omitempty"`

	// Truncated is true when messages and broken Pods are left out, because the object would be larger than
	// 256 KiB.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// ObservedGeneration is the generation of the Assignment that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ClusterReport is what one cluster reports of one object.
type ClusterReport struct {
	// Cluster is the name of the Cluster.
	Cluster ClusterName `json:"cluster"`

	// Term of the cluster's Work when this was written.
	// +optional
	Term int64 `json:"term,omitempty"`

	// Revision of the cluster's Work when this was written. When the Work is lost, the hub creates it again
	// with a much greater revision.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Applied is true when the cluster has applied the present Work.
	Applied bool `json:"applied"`

	// Ready is true when the object is ready in the cluster, as kstatus computes it.
	Ready bool `json:"ready"`

	// Replicas in the cluster, and how many of them are ready and available; absent for kinds without
	// replicas.
	// +optional
	Replicas *ReplicaCounts `json:"replicas,omitempty"`

	// Message describes a problem in the cluster.
	// +optional
	Message string `json:"message,omitempty"`

	// Associated objects in the cluster.
	// +optional
	Associated *Associated `json:"associated,omitempty"`
}

// ReplicaCounts counts replicas in one cluster.
type ReplicaCounts struct {
	// Total is the number of replicas that exist.
	// +optional
	Total int32 `json:"total,omitempty"`

	// Ready is the number of ready replicas.
	// +optional
	Ready int32 `json:"ready,omitempty"`

	// Available is the number of replicas that are ready for minReadySeconds.
	// +optional
	Available int32 `json:"available,omitempty"`
}

// Associated counts the objects that controllers in a cluster created for a placed object. The agent finds
// them by their ownerReferences.
type Associated struct {
	// Pods by phase, such as Running, or by the reason why they wait, such as CrashLoopBackOff.
	// +optional
	// +mapType=atomic
	Pods map[string]int32 `json:"pods,omitempty"`

	// Broken are at most 20 Pods that fail or cannot start, sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Broken []BrokenPod `json:"broken,omitempty"`
}

// BrokenPod is a Pod that fails or cannot start.
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
