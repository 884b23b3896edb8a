// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Placement says where objects of its namespace run. It comes before every
// ClusterPlacement; the annotation on an object comes before both.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.spec.clusters.names`
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.replicas.mode`
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the policy.
	// +optional
	Spec PlacementSpec `json:"spec,omitempty"`

	// Status is what became of it.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterPlacement says where objects of many namespaces run, and cluster-scoped ones.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.spec.clusters.names`
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.replicas.mode`
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPlacement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the policy.
	// +optional
	Spec ClusterPlacementSpec `json:"spec,omitempty"`

	// Status is what became of it.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// PolicyStatus says whether a policy can be used.
type PolicyStatus struct {
	// Conditions: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// PlacementList is a list of Placements.
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Placement `json:"items"`
}

// ClusterPlacementList is a list of ClusterPlacements.
// +kubebuilder:object:root=true
type ClusterPlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []ClusterPlacement `json:"items"`
}
