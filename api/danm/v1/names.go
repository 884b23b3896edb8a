// SPDX-License-Identifier: Apache-2.0

package v1

// Kinds, as in manifests and in apiType of a DanmEp.
const (
	// KindClusterNetwork is the cluster-scoped network kind.
	KindClusterNetwork = "ClusterNetwork"
	// KindTenantNetwork is the network kind that tenants write.
	KindTenantNetwork = "TenantNetwork"
	// KindDanmNet is the namespaced network kind that netadmins write.
	KindDanmNet = "DanmNet"
)

// Annotations that users set.
const (
	// InterfacesAnnotation on a Pod is the JSON list of the requested interfaces.
	InterfacesAnnotation = "danm.io/interfaces"
	// LegacyInterfacesAnnotation is DANM 4.3's name of InterfacesAnnotation.
	LegacyInterfacesAnnotation = "danm.k8s.io/interfaces"
	// NodeAffinityAnnotation on a Pod with the value "none" keeps admission from adding node
	// affinity for the NICs of the Pod's networks.
	NodeAffinityAnnotation = "danm.io/node-affinity"
	// TakeOverAnnotation with the value "true" on a TenantConfig reserves the assignments of the
	// networks in its namespaces again. It must not be set on a network: taking over a live DANM
	// network with its bitmap is not supported yet.
	TakeOverAnnotation = "danm.io/take-over"
)

// NodeAffinityNone is the only value of danm.io/node-affinity.
const NodeAffinityNone = "none"

// NICLabelPrefix is the prefix of the labels on a Node that name its NICs, such as
// "nics.danm.io/ens4": "". The controller keeps them as the node's NodeNetwork reports. Accounts of
// nodes cannot change them.
const NICLabelPrefix = "nics.danm.io/"

// DefaultInterfacesLabel on a Namespace, with any value, makes admission treat its Pods without
// danm.io/interfaces as if they had it with an empty list.
const DefaultInterfacesLabel = "danm.io/default-interfaces"

// MovedFromAnnotation on a DanmEp is its earlier namespace and name, such as "web/x1". The controller
// moves a DanmEp when its namespace is being deleted and its Pod does not exist.
const MovedFromAnnotation = "danm.io/moved-from"

// AssignedAnnotation on a TenantNetwork is its assignment from a TenantConfig, such as
// "vlan/ens4/1003 5f3a9c01d2e4b687": kind, device and ID, and the token of the reservation. Admission
// sets it; users cannot.
const AssignedAnnotation = "danm.io/assigned"

// Annotations for requests to patchbay-controller. Every user with write access to a network may set
// them: they do not affect the addresses of other networks.
const (
	// RebuildAnnotation on a network, with any value, requests a rebuild of its bitmap from the
	// nodes' entries and the DanmEps. The controller removes it afterwards.
	RebuildAnnotation = "danm.io/ipam-rebuild"
	// SkipAnnotation on a network in recovery is a comma-separated list of nodes that the recovery
	// does not wait for: they are powered off, and their Pods have ended. The controller removes it
	// after the recovery.
	SkipAnnotation = "danm.io/ipam-skip"
	// RecoveringAnnotation on a network is the start time of its recovery. The controller sets it for
	// nodes that do not use the network and watch its metadata only: each reports once per value.
	RecoveringAnnotation = "danm.io/recovering"
)

// Finalizers that Patchbay sets.
const (
	// NodeFinalizer on a DanmEp is removed by the Pod's node only, after the interface is deleted and
	// its addresses are back in the node's entry.
	NodeFinalizer = "danm.io/node"
	// InUseFinalizer on a network stays until no node has an address of it and no DanmEp refers to
	// it.
	InUseFinalizer = "danm.io/in-use"
)

// DefaultNetworkName is the network of a Pod without an annotation.
const DefaultNetworkName = "default"

// Patchbay's own backends, as NetworkType (case-insensitive). Every other value is the name of a CNI
// plugin to delegate to.
const (
	// TypeIPVLAN is an IPVLAN slave of the parent, and the default.
	TypeIPVLAN = "ipvlan"
	// TypeMACVLAN is a MACVLAN slave of the parent.
	TypeMACVLAN = "macvlan"
	// TypeSRIOV is a virtual function of a device pool.
	TypeSRIOV = "sriov"
)
