// SPDX-License-Identifier: Apache-2.0

package v1

// Conditions of networks.
const (
	// ConditionReady reports whether Pods can use the network: the nodes on which its link is up, or
	// the errors of its definition.
	ConditionReady = "Ready"

	// ConditionAddressesAvailable reports whether new Pods get dynamic addresses.
	ConditionAddressesAvailable = "AddressesAvailable"

	// ConditionRecovering is only ever True: the network's status was rolled back, and no address
	// is allocated before all nodes have reported the addresses that they use.
	ConditionRecovering = "Recovering"

	// ConditionRecoveryDeferred is only ever True: a node reports so many rollbacks that its reports
	// start no recovery for a time. The message names the node.
	ConditionRecoveryDeferred = "RecoveryDeferred"

	// ConditionAddressConflict is only ever True: two Pods, or a Pod and another node, have the same
	// address. The message names them.
	ConditionAddressConflict = "AddressConflict"

	// ConditionConflict is only ever True: an older network conflicts with this one, and no Pod can
	// attach. The message names the older network and the remedy.
	ConditionConflict = "Conflict"
)

// Conditions of NodeNetworks, beside Ready.
const (
	// ConditionDanmEpsMissing is only ever True: Pods on the node are attached, and their DanmEps could not be created.
	// The message names them. Services do not reach them, and an uninstallation waits for them.
	ConditionDanmEpsMissing = "DanmEpsMissing"
)
