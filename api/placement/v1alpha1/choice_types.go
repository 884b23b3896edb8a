// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ObjectName is the name of an object at the hub.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type ObjectName string

// ClusterName is the name of a Cluster: it is part of a namespace's name.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=55
type ClusterName string

// ClusterChoice selects clusters. All parts that are there must match.
type ClusterChoice struct {
	// Names of clusters, in order of preference.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	Names []ClusterName `json:"names,omitempty"`

	// Selector of the Clusters' labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Count is how many of them to use; absent: all, or one in the mode Single.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	Count *int32 `json:"count,omitempty"`

	// Tolerations of the clusters' taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// Spread is a label of Clusters; as many of its values as possible are used when
	// Count leaves a choice.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Spread string `json:"spread,omitempty"`
}
