// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a Cluster.
const (
	// ConditionAccepted: an infrastructure admin has accepted the cluster.
	ConditionAccepted = "Accepted"
	// ConditionReachable: the agent's heartbeat is fresh. False does not mean that the cluster is lost.
	ConditionReachable = "Reachable"
	// ConditionDrained: no object is placed in a cluster that is being drained.
	ConditionDrained = "Drained"
	// ConditionHubMismatch: some Works are of another hub, or of an earlier state of this hub. Their objects
	// stay as they are, and the agent removes nothing, until a user runs kubectl patchbay hub resume.
	ConditionHubMismatch = "HubMismatch"
	// ConditionDeclaredLost: an admin has declared the cluster lost, and it has not reported since.
	ConditionDeclaredLost = "DeclaredLost"
)

// Conditions of an Assignment.
const (
	// ConditionPlaced: the targets are those that the policy requests.
	ConditionPlaced = "Placed"
	// ConditionRendered: the Work of each target has the present object.
	ConditionRendered = "Rendered"
	// ConditionMoveBlocked: a move waits. The message has the cause.
	ConditionMoveBlocked = "MoveBlocked"
	// ConditionTrafficMerged, of a Service on a stretched ClusterNetwork: each cluster has the ready endpoints of the
	// others.
	ConditionTrafficMerged = "TrafficMerged"
)

// Conditions of a Placement, ClusterPlacement or Customization.
const (
	// ConditionValid: the object is valid. Else the message has field and value.
	ConditionValid = "Valid"
)

// Conditions of a Work; those of its manifests have the same names.
const (
	// ConditionApplied: the agent has applied the Work.
	ConditionApplied = "Applied"
	// ConditionReady: the objects are ready, as kstatus computes it.
	ConditionReady = "Ready"
	// ConditionOrphaned, of an AppliedWork: the hub's Work is gone without an order to remove its objects.
	// The agent keeps them.
	ConditionOrphaned = "Orphaned"
)
