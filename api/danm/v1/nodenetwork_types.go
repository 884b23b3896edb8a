// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNetwork is what one node's daemon says of the node's NICs and of the host
// links that it made. It has the Node's name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nn,categories=danm
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is written by the node's daemon, on change only.
	// +optional
	Status NodeNetworkStatus `json:"status,omitempty"`
}

// NodeNetworkStatus describes the links of one node. The controller repeats errors in the
// conditions of networks, so that text has bounds.
type NodeNetworkStatus struct {
	// Conditions: Ready, and what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NICs are the node's own interfaces, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	NICs []NIC `json:"nics,omitempty"`

	// Links are the host links of Patchbay, and the NICs that networks use
	// directly, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Links []HostLink `json:"links,omitempty"`

	// Refused are the networks that get no link on this node, since an older one
	// or something else on the node is in the way.
	// +optional
	// +listType=map
	// +listMapKey=network
	Refused []RefusedNetwork `json:"refused,omitempty"`

	// Version of the node's daemon.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`

	// KernelVersion is the release of the node's kernel, as uname -r says it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	KernelVersion string `json:"kernelVersion,omitempty"`
}

// RefusedNetwork is a network that has no link on a node.
type RefusedNetwork struct {
	// Network as kind/namespace/name or kind/name.
	// +kubebuilder:validation:MaxLength=512
	Network string `json:"network"`

	// Error says what is in the way and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error"`
}

// States of a HostLink.
const (
	// LinkUp: it is as the networks need it.
	LinkUp = "Up"
	// LinkDown: it is set down, or its NIC has no carrier.
	LinkDown = "Down"
	// LinkError: it cannot be made or mended; the error says why.
	LinkError = "Error"
	// LinkChangePending: it is not as the networks need it, or not needed at all, and stays
	// as it is while Pods are on it; the error says what waits.
	LinkChangePending = "ChangePending"
)

// NIC is a network interface of a node.
type NIC struct {
	// Name of the interface.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// MAC is the link-layer address.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MAC string `json:"mac,omitempty"`

	// MTU in bytes.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// Driver of the device.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Driver string `json:"driver,omitempty"`

	// Speed in Mbit/s; 0 when the device does not say.
	// +optional
	Speed int32 `json:"speed,omitempty"`

	// Addresses are the global addresses with prefix lengths, the kernel's
	// order; the first is the VTEP of VXLANs on this NIC.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`

	// SRIOV tells the virtual functions of a physical function.
	// +optional
	SRIOV *SRIOVFunctions `json:"sriov,omitempty"`
}

// SRIOVFunctions counts the virtual functions of a NIC.
type SRIOVFunctions struct {
	// TotalVFs is what the device can make.
	TotalVFs int32 `json:"totalVFs"`

	// NumVFs is how many exist.
	NumVFs int32 `json:"numVFs"`
}

// HostLink is one VLAN or VXLAN link on a node, or a NIC that networks use as it is.
type HostLink struct {
	// Name of the link.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// Identity is "vlan/<device>/<id>", "vxlan/<vni>" or "nic/<device>".
	// +kubebuilder:validation:MaxLength=128
	Identity string `json:"identity"`

	// Parent is the NIC below.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Parent string `json:"parent,omitempty"`

	// MTU in bytes.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// VTEP is the node's own address, which the others send to; of a VXLAN only.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	VTEP string `json:"vtep,omitempty"`

	// State is Up, Down, Error or ChangePending.
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state"`

	// Error says what is wrong and what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`

	// Networks that ride on this link, as kind/namespace/name or kind/name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=512
	Networks []string `json:"networks,omitempty"`
}

// NodeNetworkList is a list of NodeNetworks.
// +kubebuilder:object:root=true
type NodeNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the objects.
	Items []NodeNetwork `json:"items"`
}
