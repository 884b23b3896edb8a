// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Cluster is a workload cluster. Infrastructure people write its spec, and no program
// of ours ever does.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=patchbay-placement
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name=Reachable,type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name=Drain,type=string,JSONPath=`.spec.drain.mode`
// +kubebuilder:printcolumn:name=Objects,type=integer,JSONPath=`.status.assigned.objects`
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.status.assigned.replicas`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.versions.kubernetes`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what may run there.
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`

	// Status is what the agent and the hub know of it.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec says what may run in a cluster.
type ClusterSpec struct {
	// Accepted lets the cluster's agent in: its certificate is signed only then.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// Unschedulable keeps new placements away; what is there stays.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`

	// Taints keep placements away that do not tolerate them.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=32
	Taints []Taint `json:"taints,omitempty"`

	// Drain moves what is placed there to other clusters.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// Limits bound what all placements together may ask of the cluster.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// Properties are facts that Customizations can use, as cluster.properties.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Properties map[string]PropertyValue `json:"properties,omitempty"`
}

// PropertyValue is a fact about a cluster.
// +kubebuilder:validation:MaxLength=1024
type PropertyValue string

// ClusterList is a list of Clusters.
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []Cluster `json:"items"`
}
