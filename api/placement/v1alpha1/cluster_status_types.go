// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterStatus is what is known of a cluster. The agent applies allocatable,
// requested, versions, hubUID and the condition HubMismatch; the hub the rest.
type ClusterStatus struct {
	// Conditions: Accepted, Reachable, Drained, HubMismatch.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Allocatable is the sum over the cluster's ready, schedulable nodes.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Requested is the sum of the requests of all Pods there, ours or not.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`

	// Assigned is what the hub has placed there.
	// +optional
	Assigned *Assigned `json:"assigned,omitempty"`

	// Versions of the programs there.
	// +optional
	Versions *Versions `json:"versions,omitempty"`

	// HubUID is the hub that the cluster's agent works for: the UID of that hub's
	// namespace kube-system.
	// +optional
	HubUID string `json:"hubUID,omitempty"`
}

// Assigned sums up what the hub has placed on one cluster.
type Assigned struct {
	// Objects that have this cluster as target.
	Objects int32 `json:"objects"`

	// Replicas of those objects there.
	Replicas int32 `json:"replicas"`

	// Requests of the Pods of those replicas.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// Versions of the programs in a cluster.
type Versions struct {
	// Kubernetes is the API server's version.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`

	// Agent is patchbay-agent's version.
	// +optional
	Agent string `json:"agent,omitempty"`
}
