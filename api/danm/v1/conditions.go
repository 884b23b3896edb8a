// SPDX-License-Identifier: Apache-2.0

package v1

// ConditionReady of a network reports whether Pods can use it: the nodes on which its link is up, or
// the errors of its definition.
const ConditionReady = "Ready"

// Reasons of a network's ConditionReady that patchbay-controller writes.
const (
	// ReasonLinksUp: the network's link is up on all nodes.
	ReasonLinksUp = "LinksUp"
	// ReasonLinksNotUp: the message has the number of nodes on which the link is up, and the
	// problems of the others.
	ReasonLinksNotUp = "LinksNotUp"
	// ReasonNoNodeReports: no node has reported its links. The status is Unknown.
	ReasonNoNodeReports = "NoNodeReports"
)

// Conditions of networks that patchbay-controller writes, with their reasons.
const (
	// ConditionAddressesAvailable reports whether new Pods get dynamic addresses.
	ConditionAddressesAvailable = "AddressesAvailable"
	// ReasonAddressesSufficient: less than 90 % of the addresses are in use or pre-allocated.
	ReasonAddressesSufficient = "AddressesSufficient"
	// ReasonAddressesNearlyExhausted, with status True: 90 % or more are in use or pre-allocated.
	ReasonAddressesNearlyExhausted = "AddressesNearlyExhausted"
	// ReasonAddressesExhausted, with status False: all are in use or pre-allocated.
	ReasonAddressesExhausted = "AddressesExhausted"

	// ConditionRecovering is only ever True: the network's status was rolled back, and no address
	// is allocated before all nodes have reported the addresses that they use.
	ConditionRecovering = "Recovering"
	// ReasonAwaitingNodes: the message names the nodes that have not reported.
	ReasonAwaitingNodes = "AwaitingNodes"

	// ConditionRecoveryDeferred is only ever True: a node reports so many rollbacks that its reports
	// start no recovery for a time. The message names the node.
	ConditionRecoveryDeferred = "RecoveryDeferred"
	// ReasonTooManyRollbacks: the node may be compromised.
	ReasonTooManyRollbacks = "TooManyRollbacks"

	// ConditionAddressConflict is only ever True: two Pods, or a Pod and another node, have the same
	// address. The message names them.
	ConditionAddressConflict = "AddressConflict"
	// ReasonDuplicateAddress is also the reason of Events on the Pods.
	ReasonDuplicateAddress = "DuplicateAddress"
	// ReasonBitmapDamaged is the reason of Events: bits of addresses in use were clear.
	ReasonBitmapDamaged = "BitmapDamaged"

	// ConditionConflict is only ever True: an older network conflicts with this one, and no Pod can
	// attach. The message names the older network and the remedy.
	ConditionConflict = "Conflict"
	// ReasonLinkTaken: the name or the identity of the link is taken.
	ReasonLinkTaken = "LinkTaken"
	// ReasonParentShared: their backends or modes cannot share one parent.
	ReasonParentShared = "ParentShared"
	// ReasonPoolOverlap: both would allocate the same addresses.
	ReasonPoolOverlap = "PoolOverlap"
)

// ReasonForgedDanmEp is the reason of an Event on a Pod: a node that is not the Pod's created a DanmEp for it.
const ReasonForgedDanmEp = "ForgedDanmEp"

// Reasons of Events on Nodes about DanmEps that outlive their Pods and block the deletion of a
// namespace.
const (
	// ReasonDanmEpMoved: the controller moved the DanmEp into its own namespace.
	ReasonDanmEpMoved = "DanmEpMoved"
	// ReasonDanmEpOrphaned: the DanmEp must stay in the namespace of its network.
	ReasonDanmEpOrphaned = "DanmEpOrphaned"
)

// Reasons of Events on networks about a rebuild that RebuildAnnotation started.
const (
	// ReasonBitmapRebuilt: the message has the changes.
	ReasonBitmapRebuilt = "BitmapRebuilt"
	// ReasonBitmapRebuildFailed: the message has the error; the controller retries.
	ReasonBitmapRebuildFailed = "BitmapRebuildFailed"
)
