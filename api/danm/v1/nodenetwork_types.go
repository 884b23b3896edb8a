// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNetwork is the report of one node's daemon about the node's NICs and the host links
// that the daemon manages. It has the Node's name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nn,categories=danm
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Node-Configuration,type=string,JSONPath=`.status.nodeConfiguration.file`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the report. The node's daemon writes it when it changes.
	// +optional
	Status NodeNetworkStatus `json:"status,omitempty"`
}

// NodeNetworkStatus describes the links of one node. Texts are bounded, because the
// controller repeats errors in the conditions of networks.
type NodeNetworkStatus struct {
	// Conditions: Ready, and problems.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NICs are the node's own interfaces, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	NICs []NIC `json:"nics,omitempty"`

	// Links are the host links of Patchbay, and the NICs that networks use directly, sorted by
	// name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Links []HostLink `json:"links,omitempty"`

	// Refused are the networks without a link on this node, because of a conflict with an
	// older network or another link of the node.
	// +optional
	// +listType=map
	// +listMapKey=network
	Refused []RefusedNetwork `json:"refused,omitempty"`

	// Delegates are the CNI plugins and configurations that networks of another NetworkType than
	// Patchbay's own need on the node.
	// +optional
	// +listType=map
	// +listMapKey=networkType
	// +listMapKey=networkID
	// +kubebuilder:validation:MaxItems=1000
	Delegates []DelegateReport `json:"delegates,omitempty"`

	// NodeConfiguration is the CNI configuration that Pods without annotation danm.io/interfaces get on the
	// node while no network named default is for them: in the runtime's folder, the file of flag
	// --default-delegate of patchbayd, else the first one beside Patchbay's.
	// +optional
	NodeConfiguration *NodeConfiguration `json:"nodeConfiguration,omitempty"`

	// Version of the node's daemon.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`

	// KernelVersion is the release of the node's kernel, as uname -r prints it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	KernelVersion string `json:"kernelVersion,omitempty"`
}

// RefusedNetwork is a network that has no link on a node.
type RefusedNetwork struct {
	// Network is kind/namespace/name or kind/name.
	// +kubebuilder:validation:MaxLength=512
	Network string `json:"network"`

	// Error describes the conflict and how to resolve it.
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error"`
}

// MaxDelegates is the most delegates in a NodeNetworkStatus.
const MaxDelegates = 1000

// DelegateReport reports whether a node has a CNI plugin and a configuration for it. It does not name the
// networks, because the report would grow with tenants' networks that have both in common.
type DelegateReport struct {
	// NetworkType of the networks, which is the name of the plugin.
	// +kubebuilder:validation:MaxLength=63
	NetworkType string `json:"networkType"`

	// NetworkID of the networks, which is the name of the configuration.
	// +kubebuilder:validation:MaxLength=63
	NetworkID string `json:"networkID"`

	// Error describes what is missing and how to solve it; empty when nothing is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
}

// NodeConfiguration is a CNI configuration of a node that is not Patchbay's.
type NodeConfiguration struct {
	// File is the name of the file in the runtime's folder of configurations; empty when there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	File string `json:"file,omitempty"`

	// Name is the name of the network in the file.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`

	// Error describes why no Pod can get the configuration, and how to solve it; empty when Pods can.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
}

// States of a HostLink.
const (
	// LinkUp: the link is configured as the networks need it.
	LinkUp = "Up"
	// LinkDown: the link is set down, or its NIC has no carrier.
	LinkDown = "Down"
	// LinkError: the link cannot be created or repaired; see the error.
	LinkError = "Error"
	// LinkChangePending: the link must be changed or removed, and stays unchanged while Pods are
	// on it; see the error.
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

	// Speed in Mbit/s; 0 when it is unknown.
	// +optional
	Speed int32 `json:"speed,omitempty"`

	// Addresses are the global addresses with prefix lengths, in the kernel's order. The
	// first is the VTEP of VXLANs on this NIC.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`

	// SRIOV has the virtual functions, for a physical function.
	// +optional
	SRIOV *SRIOVFunctions `json:"sriov,omitempty"`
}

// Modes of the switch that connects a physical function with its virtual ones.
const (
	// SwitchModeLegacy: the switch forwards by MAC and VLAN.
	SwitchModeLegacy = "legacy"
	// SwitchModeSwitchdev: each function has a representor on the node, and the node programs the
	// switch.
	SwitchModeSwitchdev = "switchdev"
)

// MaxFunctions is the most functions in a SRIOVFunctions.
const MaxFunctions = 256

// SRIOVFunctions has the virtual functions of a NIC. The kernel reports no change of them, such as of a
// driver, so a change is here after at most a minute.
type SRIOVFunctions struct {
	// TotalVFs is the number that the device supports.
	TotalVFs int32 `json:"totalVFs"`

	// NumVFs is the number that exists.
	NumVFs int32 `json:"numVFs"`

	// Address is the PCI address of the NIC, which is the physical function.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`

	// Mode of the NIC's switch, legacy or switchdev. It is empty while there are no functions.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Mode string `json:"mode,omitempty"`

	// Functions are the virtual functions by index, the first 256 of them. The DanmEp with the
	// function's address as DeviceID, and the node as Host, names the Pod that has a function.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=256
	Functions []VirtualFunction `json:"functions,omitempty"`
}

// VirtualFunction is a virtual function of a NIC. What changes with each Pod is not here, because all
// nodes read NodeNetworks: neither the Pod nor the function's network interface.
type VirtualFunction struct {
	// Index is the function's number at the physical function, from 0.
	Index int32 `json:"index"`

	// Address is the PCI address.
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`

	// Driver that is bound to the function; empty if none is.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Driver string `json:"driver,omitempty"`

	// Userspace is whether the driver is one for programs such as DPDK, like vfio-pci. The function then
	// has no network interface.
	// +optional
	Userspace bool `json:"userspace,omitempty"`

	// Representor is the node's interface that represents the function in the NIC's switch, in mode
	// switchdev only.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Representor string `json:"representor,omitempty"`
}

// HostLink is one VLAN or VXLAN link on a node, or a NIC that networks use directly.
type HostLink struct {
	// Name of the link.
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// Identity is "vlan/<device>/<id>", "vxlan/<vni>" or "nic/<device>".
	// +kubebuilder:validation:MaxLength=128
	Identity string `json:"identity"`

	// Parent is the NIC that the link is on.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Parent string `json:"parent,omitempty"`

	// MTU in bytes.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// VTEP is the node's address to which other nodes send, for a VXLAN.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	VTEP string `json:"vtep,omitempty"`

	// State is Up, Down, Error or ChangePending.
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state"`

	// Error describes the problem and how to solve it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`

	// Networks on this link, as kind/namespace/name or kind/name.
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
