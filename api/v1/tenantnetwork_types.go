// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantNetwork is a tenant's network: its physical attributes are assigned from the
// TenantConfig.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tn;tnet,categories=danm
type TenantNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the network is to be.
	Spec NetworkSpec `json:"spec"`

	// Status is what Patchbay knows of it.
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// TenantNetworkList is a list of TenantNetworks.
// +kubebuilder:object:root=true
type TenantNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []TenantNetwork `json:"items"`
}
