// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of an Installation.
const (
	// ConditionValid: the spec can work. Else nothing is changed, and the message has fields and values.
	ConditionValid = "Valid"
	// ConditionApplied: all objects are as the spec says.
	ConditionApplied = "Applied"
	// ConditionNode: the node daemon runs with the present template on all nodes.
	ConditionNode = "Node"
	// ConditionController: the controller runs with the present template.
	ConditionController = "Controller"
	// ConditionPlacementAgent: the agent runs with the present template. It is missing without an agent.
	ConditionPlacementAgent = "PlacementAgent"
	// ConditionUninstalled: the Installation is being deleted, and the reason is the step. It is missing before.
	ConditionUninstalled = "Uninstalled"
	// ConditionReady: all other conditions are True.
	ConditionReady = "Ready"
)
