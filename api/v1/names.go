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

// Conditions of networks that patchbay-controller writes, with their reasons.
const (
	// ConditionAddressesAvailable says whether new Pods get dynamic addresses.
	ConditionAddressesAvailable = "AddressesAvailable"
	// ReasonEnough: less than 90 % of the addresses are in use or held.
	ReasonEnough = "Enough"
	// ReasonScarce, with status True: 90 % or more are in use or held.
	ReasonScarce = "Scarce"
	// ReasonExhausted, with status False: all are in use or held.
	ReasonExhausted = "Exhausted"

	// ConditionRecovering, only ever True, says that the network's status went
	// back in time, and that no address is given out before all nodes have said
	// what they use.
	ConditionRecovering = "Recovering"
	// ReasonAwaitingNodes: the message names those who have not.
	ReasonAwaitingNodes = "AwaitingNodes"

	// ConditionRecoveryDeferred, only ever True, says that a node reports so many rollbacks
	// that its reports start no recovery for now. The message names it.
	ConditionRecoveryDeferred = "RecoveryDeferred"
	// ReasonTooManyRollbacks: the machine may have been taken over.
	ReasonTooManyRollbacks = "TooManyRollbacks"

	// ConditionAddressConflict, only ever True, says that two Pods have one address, or a
	// Pod and another node. The message names them.
	ConditionAddressConflict = "AddressConflict"
	// ReasonDuplicateAddress, also of Events on the Pods.
	ReasonDuplicateAddress = "DuplicateAddress"
	// ReasonBitmapDamaged is of Events: bits of addresses in use were clear.
	ReasonBitmapDamaged = "BitmapDamaged"

	// ConditionConflict, only ever True, says that an older network is in the way of
	// this one, and that no Pod can attach. The message names it and what would help.
	ConditionConflict = "Conflict"
	// ReasonLinkTaken: a link's name or identity is taken for something else.
	ReasonLinkTaken = "LinkTaken"
	// ReasonParentShared: their backends or modes do not go on one parent.
	ReasonParentShared = "ParentShared"
	// ReasonPoolOverlap: both would give out the same addresses.
	ReasonPoolOverlap = "PoolOverlap"
)

// ReasonForgedDanmEp of an Event on a Pod: another node than the Pod's made a DanmEp for it.
const ReasonForgedDanmEp = "ForgedDanmEp"

// Reasons of Events on Nodes about DanmEps that outlive their Pods and keep a namespace that
// is being deleted.
const (
	// ReasonDanmEpMoved: the controller moved it into its own namespace.
	ReasonDanmEpMoved = "DanmEpMoved"
	// ReasonDanmEpOutlivesPod: it has to stay where its network is.
	ReasonDanmEpOutlivesPod = "DanmEpOutlivesPod"
)

// Reasons of Events on networks that answer RebuildAnnotation.
const (
	// ReasonRebuilt: the message says what changed.
	ReasonRebuilt = "Rebuilt"
	// ReasonRebuildFailed: the message says why; it is tried again.
	ReasonRebuildFailed = "RebuildFailed"
)
