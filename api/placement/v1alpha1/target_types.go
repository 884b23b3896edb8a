// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	// Asked is how many replicas are asked of the cluster now: the mover brings it
	// to Replicas step by step.
	// +optional
	Asked *int32 `json:"asked,omitempty"`

	// State in a move.
	State TargetState `json:"state"`

	// Since is when the state, or Asked, last changed.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
}
