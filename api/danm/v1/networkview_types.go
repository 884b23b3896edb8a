// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkViewName is the name of the NetworkView in each namespace.
const NetworkViewName = "networks"

// NetworkView lists the networks that the Pods of its namespace may join. The controller writes one
// named "networks" in each namespace, and corrects it after a change by a user. It has no physical
// attribute of a network, and no name of another tenant.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=nv,categories=danm
// +kubebuilder:printcolumn:name=Networks,type=integer,JSONPath=`.count`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkView struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Count is how many networks there are, also beyond the 100 of Networks.
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`

	// Networks are the first 100 of the networks, sorted by kind and name: ClusterNetworks, then
	// DanmNets and TenantNetworks of the namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Networks []ViewedNetwork `json:"networks,omitempty"`
}

// ViewedNetwork is what a tenant may know of a network.
type ViewedNetwork struct {
	// Kind is ClusterNetwork, DanmNet or TenantNetwork: it tells which key of the Pod annotation
	// names the network.
	// +kubebuilder:validation:Enum=ClusterNetwork;DanmNet;TenantNetwork
	Kind string `json:"kind"`

	// Name of the network.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Type is the backend or the CNI plugin, in lower case: spec.NetworkType.
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`

	// CIDR is the network's IPv4 subnet; empty when it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	CIDR string `json:"cidr,omitempty"`

	// Net6 is the network's IPv6 subnet; empty when it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	Net6 string `json:"net6,omitempty"`

	// Pools are the numbers of dynamic addresses, IPv4 first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Pools []ViewedPool `json:"pools,omitempty"`

	// Ready is the status of the network's condition Ready; Unknown when it has none.
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Ready metav1.ConditionStatus `json:"ready"`
}

// ViewedPool has the numbers of one family of addresses; see PoolStatus.
type ViewedPool struct {
	// Family is IPv4 or IPv6.
	// +kubebuilder:validation:Enum=IPv4;IPv6
	Family string `json:"family"`

	// Capacity is how many dynamic addresses there are.
	Capacity int64 `json:"capacity"`

	// Free is how many of them are left, within 5 % of Capacity. It is 0 only when none is left.
	Free int64 `json:"free"`
}

// NetworkViewList is a list of NetworkViews.
// +kubebuilder:object:root=true
type NetworkViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []NetworkView `json:"items"`
}
