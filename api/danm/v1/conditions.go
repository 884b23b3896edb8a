// SPDX-License-Identifier: Apache-2.0

package v1

// ConditionReady of a network says whether Pods can use it: on which nodes its link
// is up, or what is wrong with its definition.
const ConditionReady = "Ready"

// Reasons of a network's ConditionReady that patchbay-controller writes.
const (
	// ReasonLinksUp: the network's link is up on all nodes.
	ReasonLinksUp = "LinksUp"
	// ReasonLinksNotUp: the message says on how many nodes it is, and what is wrong
	// with the others.
	ReasonLinksNotUp = "LinksNotUp"
	// ReasonNoNodeReports, with status Unknown: no node has reported its links.
	ReasonNoNodeReports = "NoNodeReports"
)

// Conditions of networks that patchbay-controller writes, with their reasons.
const (
	// ConditionAddressesAvailable says whether new Pods get dynamic addresses.
	ConditionAddressesAvailable = "AddressesAvailable"
	// ReasonAddressesSufficient: less than 90 % of the addresses are in use or held.
	ReasonAddressesSufficient = "AddressesSufficient"
	// ReasonAddressesNearlyExhausted, with status True: 90 % or more are in use or held.
	ReasonAddressesNearlyExhausted = "AddressesNearlyExhausted"
	// ReasonAddressesExhausted, with status False: all are in use or held.
	ReasonAddressesExhausted = "AddressesExhausted"

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
	// ReasonDanmEpOrphaned: it has to stay where its network is.
	ReasonDanmEpOrphaned = "DanmEpOrphaned"
)

// Reasons of Events on networks that answer RebuildAnnotation.
const (
	// ReasonBitmapRebuilt: the message says what changed.
	ReasonBitmapRebuilt = "BitmapRebuilt"
	// ReasonBitmapRebuildFailed: the message says why; it is tried again.
	ReasonBitmapRebuildFailed = "BitmapRebuildFailed"
)
