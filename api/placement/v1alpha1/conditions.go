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
)

// Conditions of an Assignment.
const (
	// ConditionPlaced: the targets are those that the policy requests.
	ConditionPlaced = "Placed"
	// ConditionRendered: the Work of each target has the present object.
	ConditionRendered = "Rendered"
	// ConditionMoveBlocked: a move waits. The message has the cause.
	ConditionMoveBlocked = "MoveBlocked"
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

// Reasons of conditions and Events that users see.
const (
	// ReasonUnschedulable: no cluster has room, or too few clusters. The message has the numbers.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNoPolicy: neither policy nor annotation selects the object any more. It stays where it is until
	// a user orders its removal.
	ReasonNoPolicy = "NoPolicy"
	// ReasonNoClustersRequested: the annotation is empty, so that no cluster gets the object.
	ReasonNoClustersRequested = "NoClustersRequested"
	// ReasonNoClusterSelected: the policy selects no accepted Cluster.
	ReasonNoClusterSelected = "NoClusterSelected"
	// ReasonWaitingForCluster: a cluster for the object has not joined yet, or does not report. The message
	// names it.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonVolumesRefused: the object has volumes of its own in a cluster, and stays there. The message
	// names the claim.
	ReasonVolumesRefused = "VolumesRefused"
	// ReasonTooManyTargets: the policy selects more than MaxTargets clusters.
	ReasonTooManyTargets = "TooManyTargets"
	// ReasonAssignmentLost: a user deleted the Assignment of an object that needs this one. This object stays
	// until the hub has created that Assignment again.
	ReasonAssignmentLost = "AssignmentLost"
	// ReasonDrainBlocked: objects cannot leave a cluster that is being drained. The message names some of
	// them.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonNamespaceTaken: the hub did not create the namespace of a Cluster. It grants no rights in it and
	// creates no Works there.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceMissing: the namespace of a target's Cluster was deleted. The hub creates it again.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonRecordLost: the cluster has no record of the object to remove, and the agent cannot identify the
	// live object as that one.
	ReasonRecordLost = "RecordLost"
	// ReasonRemovalBlocked: something in the cluster blocks the deletion of the object, such as a finalizer.
	// The message names it.
	ReasonRemovalBlocked = "RemovalBlocked"
	// ReasonPolicyTie: two policies of the same rank select the object.
	ReasonPolicyTie = "PolicyTie"
	// ReasonUnknownCluster: a Cluster in the policy or annotation does not exist.
	ReasonUnknownCluster = "UnknownCluster"
	// ReasonNotPlaceable: objects of this kind stay at the hub.
	ReasonNotPlaceable = "NotPlaceable"
	// ReasonInvalidAnnotation: the value of ClustersAnnotation is invalid.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonInvalidRule: a rule of a Customization does not compile, or failed.
	ReasonInvalidRule = "InvalidRule"
	// ReasonTooLarge: the rendered manifest is larger than MaxManifestBytes.
	ReasonTooLarge = "TooLarge"
	// ReasonConflict: a field of the object in the cluster has another owner.
	ReasonConflict = "Conflict"
	// ReasonRefused: the cluster's API server, or a rule of its admin, rejects the object.
	ReasonRefused = "Refused"
	// ReasonRemoved: the hub ordered the removal, and the agent has carried it out.
	ReasonRemoved = "Removed"
	// ReasonDeletedInCluster: a Pod or Job was deleted in the cluster without an order of the hub.
	ReasonDeletedInCluster = "DeletedInCluster"
	// ReasonAsExpected: the object is in the desired state.
	ReasonAsExpected = "AsExpected"
	// ReasonProgressing: the change is in progress.
	ReasonProgressing = "Progressing"
	// ReasonStalled: a move waits for something that does not change by itself. The message has the cause.
	ReasonStalled = "Stalled"
	// ReasonInvalidSelector: a selector of a policy is invalid.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidReplicas: the number of replicas cannot be divided.
	ReasonInvalidReplicas = "InvalidReplicas"
	// ReasonValid: the object is valid.
	ReasonValid = "Valid"
	// ReasonAccepted: an infrastructure admin has accepted the Cluster.
	ReasonAccepted = "Accepted"
	// ReasonClusterAccepted: the hub approves the certificate of an agent, because its Cluster is accepted.
	ReasonClusterAccepted = "ClusterAccepted"
	// ReasonHeartbeatReceived: the heartbeat of the Cluster's agent is fresh.
	ReasonHeartbeatReceived = "HeartbeatReceived"
	// ReasonHeartbeatLost: the Cluster's agent has stopped reporting. The cluster keeps its objects.
	ReasonHeartbeatLost = "HeartbeatLost"
	// ReasonNeverJoined: no agent of the Cluster has reported yet.
	ReasonNeverJoined = "NeverJoined"
	// ReasonAwaitingAcceptance: an infrastructure admin must accept the Cluster.
	ReasonAwaitingAcceptance = "AwaitingAcceptance"
	// ReasonAppliedWorksUnknown: the Cluster's agent does not report whether objects are left.
	ReasonAppliedWorksUnknown = "AppliedWorksUnknown"
	// ReasonDraining: objects leave the Cluster.
	ReasonDraining = "Draining"
	// ReasonDrained: no object is left in the Cluster.
	ReasonDrained = "Drained"
	// ReasonHubMismatch: the Works are of another hub, or of an earlier state of this hub.
	ReasonHubMismatch = "HubMismatch"
	// ReasonOrphaned: the hub's Work is gone without an order to remove its objects.
	ReasonOrphaned = "Orphaned"
)
