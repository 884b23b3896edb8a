// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DanmNet is the simple API: like ClusterNetwork, in a namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=dn;dnet,categories=danm
type DanmNet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the network is to be.
	Spec NetworkSpec `json:"spec"`

	// Status is what Patchbay knows of it.
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// DanmNetList is a list of DanmNets.
// +kubebuilder:object:root=true
type DanmNetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []DanmNet `json:"items"`
}
