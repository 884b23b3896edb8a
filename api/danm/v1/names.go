// SPDX-License-Identifier: Apache-2.0

package v1

// Kinds as they are written in manifests and in DanmEp's apiType.
const (
	// KindClusterNetwork is the cluster-scoped network kind.
	KindClusterNetwork = "ClusterNetwork"
	// KindTenantNetwork is the network kind that tenants write.
	KindTenantNetwork = "TenantNetwork"
	// KindDanmNet is the simple, namespaced network kind.
	KindDanmNet = "DanmNet"
)

// Annotations that users set.
const (
	// InterfacesAnnotation on a Pod is the JSON list of the interfaces it wants.
	InterfacesAnnotation = "danm.io/interfaces"
	// LegacyInterfacesAnnotation is DANM 4.3's name of InterfacesAnnotation.
	LegacyInterfacesAnnotation = "danm.k8s.io/interfaces"
	// TakeOverAnnotation, "true" on a TenantConfig, says that what networks of its
	// namespaces say they were assigned is to be reserved again. On a network it is
	// refused: taking over a live DANM network with its bitmap is not built yet.
	TakeOverAnnotation = "danm.io/take-over"
)

// MovedFromAnnotation on a DanmEp is the namespace and name that it had, such as "web/x1",
// before the controller moved it: its namespace was being deleted, and its Pod was gone.
const MovedFromAnnotation = "danm.io/moved-from"

// AssignedAnnotation on a TenantNetwork says what admission assigned to it from a
// TenantConfig, such as "vlan/ens4/1003 5f3a9c01d2e4b687": kind, device and ID, and
// the token of the reservation. Admission sets it, users cannot.
const AssignedAnnotation = "danm.io/assigned"

// Annotations that ask patchbay-controller for something. Whoever may write a
// network may set them: they reach no other network's addresses.
const (
	// RebuildAnnotation on a network, with any value, asks for its bitmap to be
	// written anew from who holds what. It is gone when that is done.
	RebuildAnnotation = "danm.io/ipam-rebuild"
	// SkipAnnotation on a network in recovery names nodes, with commas between
	// them, that the recovery does not wait for: they are off, and so are the
	// Pods on them. It is gone when the recovery is over.
	SkipAnnotation = "danm.io/ipam-skip"
	// RecoveringAnnotation on a network says since when it recovers. The controller
	// sets it for nodes that have nothing to do with the network, and so are sent its
	// metadata only: each reports once to the recovery of each value.
	RecoveringAnnotation = "danm.io/recovering"
)

// Finalizers that Patchbay sets.
const (
	// NodeFinalizer on a DanmEp is taken off by the Pod's node only, after the
	// interface is gone and its addresses are back in the node's entry.
	NodeFinalizer = "danm.io/node"
	// InUseFinalizer on a network stays until no node holds an address of it
	// and no DanmEp refers to it.
	InUseFinalizer = "danm.io/in-use"
)

// DefaultNetworkName is the network of a Pod without an annotation.
const DefaultNetworkName = "default"

// Backends of our own, as NetworkType (case-insensitive); every other value
// names a CNI plugin to delegate to.
const (
	// TypeIPVLAN is an IPVLAN slave of the parent, and what "" means.
	TypeIPVLAN = "ipvlan"
	// TypeMACVLAN is a MACVLAN slave of the parent.
	TypeMACVLAN = "macvlan"
	// TypeSRIOV is a virtual function of a device pool.
	TypeSRIOV = "sriov"
)
