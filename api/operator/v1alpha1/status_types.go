// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InstallationStatus is what the operator has installed.
type InstallationStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Version of the operator that has applied objects last. It applies those of this version.
	// +optional
	Version string `json:"version,omitempty"`

	// Parts has the progress of each part that is installed.
	// +optional
	Parts PartStatuses `json:"parts,omitempty"`

	// Conditions: Valid, Applied, Node, Controller, PlacementAgent, Uninstalled, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PartStatuses has the progress of each part that is installed.
type PartStatuses struct {
	// Node is the DaemonSet patchbayd.
	// +optional
	Node *PartStatus `json:"node,omitempty"`

	// Controller is the Deployment patchbay-controller.
	// +optional
	Controller *PartStatus `json:"controller,omitempty"`

	// PlacementAgent is the Deployment patchbay-agent.
	// +optional
	PlacementAgent *PartStatus `json:"placementAgent,omitempty"`
}

// PartStatus is the progress of a part.
type PartStatus struct {
	// Updated is how many Pods have the present template.
	Updated int32 `json:"updated"`

	// Ready is how many Pods are ready, of any template.
	Ready int32 `json:"ready"`

	// Total is how many Pods there should be.
	Total int32 `json:"total"`

	// Versions are the images of the Pods, with their numbers: several during a roll-out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Versions []PartVersion `json:"versions,omitempty"`
}

// PartVersion is an image, and how many Pods have it.
type PartVersion struct {
	// Image of the program's container.
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// Pods is how many Pods have the image.
	Pods int32 `json:"pods"`
}
