// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DanmEp is one interface of one Pod. The Pod's node writes it and nobody else.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=de;dep,categories=danm
// +kubebuilder:selectablefield:JSONPath=`.spec.NetworkName`
// +kubebuilder:selectablefield:JSONPath=`.spec.Host`
// +kubebuilder:printcolumn:name=Pod,type=string,JSONPath=`.spec.Pod`
// +kubebuilder:printcolumn:name=Interface,type=string,JSONPath=`.spec.Interface.Name`
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.apiType`
// +kubebuilder:printcolumn:name=Network,type=string,JSONPath=`.spec.NetworkName`
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.spec.Interface.Address`
// +kubebuilder:printcolumn:name=IPv6,type=string,JSONPath=`.spec.Interface.AddressIPv6`
// +kubebuilder:printcolumn:name=MAC,type=string,JSONPath=`.spec.Interface.MacAddress`,priority=1
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.Host`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type DanmEp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the interface.
	Spec DanmEpSpec `json:"spec"`

	// Status is what the node found out about the interface.
	// +optional
	Status DanmEpStatus `json:"status,omitempty"`
}

// DanmEpStatus is what the node found out about an interface.
type DanmEpStatus struct {
	// Conditions: Ready, and what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DanmEpSpec describes one interface of one Pod.
type DanmEpSpec struct {
	// NetworkName is the name of the network object.
	NetworkName string `json:"NetworkName"`

	// NetworkUID is the UID of the network object: a network that was
	// re-created with the same name does not own this endpoint's addresses.
	// +optional
	NetworkUID string `json:"NetworkUID,omitempty"`

	// NetworkType is the backend.
	// +optional
	NetworkType string `json:"NetworkType,omitempty"`

	// EndpointID is unique to the interface: derived from sandbox and name.
	EndpointID string `json:"EndpointID"`

	// Interface is what the Pod sees.
	Interface DanmEpInterface `json:"Interface"`

	// Host is the name of the Node.
	Host string `json:"Host"`

	// HostUID is the UID of the Node object.
	// +optional
	HostUID string `json:"HostUID,omitempty"`

	// Pod is the name of the Pod.
	Pod string `json:"Pod"`

	// PodUID is the UID of the Pod.
	// +optional
	PodUID string `json:"PodUID,omitempty"`

	// CID is the ID of the Pod's sandbox.
	CID string `json:"CID"`

	// Netns is the path of the Pod's network namespace.
	// +optional
	Netns string `json:"netns,omitempty"`

	// APIType is the network's kind: DanmNet, TenantNetwork, ClusterNetwork.
	// +optional
	APIType string `json:"apiType,omitempty"`
}

// DanmEpInterface is one interface as the Pod sees it.
type DanmEpInterface struct {
	// Name in the Pod.
	Name string `json:"Name"`

	// Address is the IPv4 address with its prefix length, such as 10.0.0.5/24.
	// +optional
	Address string `json:"Address,omitempty"`

	// AddressIPv6 is the IPv6 address with its prefix length.
	// +optional
	AddressIPv6 string `json:"AddressIPv6,omitempty"`

	// MacAddress is the link-layer address.
	// +optional
	MacAddress string `json:"MacAddress,omitempty"`

	// Proutes are the IPv4 policy routes, destination to gateway.
	// +optional
	// +nullable
	Proutes map[string]string `json:"proutes,omitempty"`

	// Proutes6 are the IPv6 policy routes, destination to gateway.
	// +optional
	// +nullable
	Proutes6 map[string]string `json:"proutes6,omitempty"`

	// DeviceID is the device that a device plugin gave, a PCI address.
	// +optional
	DeviceID string `json:"DeviceID,omitempty"`

	// MTU in bytes.
	// +optional
	MTU int32 `json:"Mtu,omitempty"`
}

// DanmEpList is a list of DanmEps.
// +kubebuilder:object:root=true
type DanmEpList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []DanmEp `json:"items"`
}
