// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
