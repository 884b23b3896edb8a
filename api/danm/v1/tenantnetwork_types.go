// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantNetwork is a tenant's network. Its physical attributes are assigned from the
// TenantConfig.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tn;tnet,categories=danm
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.spec.NetworkType`
// +kubebuilder:printcolumn:name=ID,type=string,JSONPath=`.spec.NetworkID`
// +kubebuilder:printcolumn:name=Device,type=string,JSONPath=`.spec.Options.host_device`,priority=1
// +kubebuilder:printcolumn:name=VLAN,type=integer,JSONPath=`.spec.Options.vlan`
// +kubebuilder:printcolumn:name=VXLAN,type=integer,JSONPath=`.spec.Options.vxlan`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.Options.cidr`
// +kubebuilder:printcolumn:name=Net6,type=string,JSONPath=`.spec.Options.net6`
// +kubebuilder:printcolumn:name=In-Use,type=integer,JSONPath=`.status.pools[0].inUse`
// +kubebuilder:printcolumn:name=Free,type=integer,JSONPath=`.status.pools[0].free`
// +kubebuilder:printcolumn:name=Capacity,type=integer,JSONPath=`.status.pools[0].capacity`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type TenantNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired network.
	// +kubebuilder:validation:XValidation:rule=`!has(self.AllowedTenants) || size(self.AllowedTenants) == 0`,fieldPath=`.AllowedTenants`,reason=FieldValueForbidden,message=`must be empty, because only a ClusterNetwork is shared between namespaces: leave AllowedTenants out, or use a ClusterNetwork`
	// +kubebuilder:validation:XValidation:rule=`!has(self.Options) || !has(self.Options.sriov)`,fieldPath=`.Options.sriov`,reason=FieldValueForbidden,message=`must not be set in a TenantNetwork, because tenants do not choose settings of the NICs: leave sriov out, or ask a netadmin for a ClusterNetwork`
	Spec NetworkSpec `json:"spec"`

	// Status is the observed network.
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
