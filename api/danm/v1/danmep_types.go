// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DanmEp is one interface of one Pod. Only the Pod's node writes it.
// +kubebuilder:object:root=true
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
// +kubebuilder:printcolumn:name=Device,type=string,JSONPath=`.spec.Interface.DeviceID`,priority=1
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.Host`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type DanmEp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the interface.
	Spec DanmEpSpec `json:"spec"`
}

// DanmEpSpec describes one interface of one Pod. Its texts are bounded and its addresses are
// validated, because all components that manage the network read the DanmEps of all nodes.
type DanmEpSpec struct {
	// NetworkName is the name of the network object.
	// +kubebuilder:validation:MaxLength=253
	NetworkName string `json:"NetworkName"`

	// NetworkUID is the UID of the network object. A network that is created again with
	// the same name does not own this endpoint's addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NetworkUID string `json:"NetworkUID,omitempty"`

	// NetworkType is the backend.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkType string `json:"NetworkType,omitempty"`

	// EndpointID identifies the interface. It is derived from the sandbox and the name.
	// +kubebuilder:validation:MaxLength=253
	EndpointID string `json:"EndpointID"`

	// Interface is the interface in the Pod.
	Interface DanmEpInterface `json:"Interface"`

	// Host is the name of the Node.
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"Host"`

	// HostUID is the UID of the Node object.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HostUID string `json:"HostUID,omitempty"`

	// Pod is the name of the Pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"Pod"`

	// PodUID is the UID of the Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"PodUID,omitempty"`

	// CID is the ID of the Pod's sandbox.
	// +kubebuilder:validation:MaxLength=253
	CID string `json:"CID"`

	// Netns is the path of the Pod's network namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Netns string `json:"netns,omitempty"`

	// APIType is the network's kind: DanmNet, TenantNetwork or ClusterNetwork.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	APIType string `json:"apiType,omitempty"`
}

// DanmEpInterface is one interface in the Pod.
type DanmEpInterface struct {
	// Name of the interface in the Pod.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"Name"`

	// Address is the IPv4 address with its prefix length, such as 10.0.0.5/24.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || self == "none" || (isCIDR(self) ? cidr(self).ip().family() == 4 : isIP(self) && ip(self).family() == 4)`,message=`must be an IPv4 address, with or without its prefix length`
	Address string `json:"Address,omitempty"`

	// AddressIPv6 is the IPv6 address with its prefix length.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || self == "none" || (isCIDR(self) ? cidr(self).ip().family() == 6 : isIP(self) && ip(self).family() == 6)`,message=`must be an IPv6 address, with or without its prefix length`
	AddressIPv6 string `json:"AddressIPv6,omitempty"`

	// MacAddress is the link-layer address.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MacAddress string `json:"MacAddress,omitempty"`

	// Proutes are the IPv4 policy routes, destination to gateway.
	// +optional
	// +nullable
	Proutes map[string]string `json:"proutes,omitempty"`

	// Proutes6 are the IPv6 policy routes, destination to gateway.
	// +optional
	// +nullable
	Proutes6 map[string]string `json:"proutes6,omitempty"`

	// DeviceID is the PCI address of the device that a device plugin allocated, with NetworkType
	// sriov. The NodeNetwork of the Host describes the device.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeviceID string `json:"DeviceID,omitempty"`

	// Representor is the node's interface that represents the device in the NIC's switch. Only
	// virtual functions of a NIC in mode switchdev have one.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Representor string `json:"Representor,omitempty"`

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
