// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterNetwork is a network of the whole cluster, written by a netadmin, with any
// attribute, for all tenants or those in AllowedTenants.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cn;cnet,categories=danm
type ClusterNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the network is to be.
	Spec NetworkSpec `json:"spec"`

	// Status is what Patchbay knows of it.
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// ClusterNetworkList is a list of ClusterNetworks.
// +kubebuilder:object:root=true
type ClusterNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []ClusterNetwork `json:"items"`
}
