// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a Cluster.
const (
	// ConditionAccepted: an infrastructure person has let the cluster in.
	ConditionAccepted = "Accepted"
	// ConditionReachable: the agent's heartbeat is fresh. False does not mean lost.
	ConditionReachable = "Reachable"
	// ConditionDrained: nothing is placed on a cluster that is being drained.
	ConditionDrained = "Drained"
	// ConditionHubMismatch: some Works are of another hub, or of an earlier state of this
	// one. Their objects stay as they are, and the agent removes nothing, until a person
	// runs kubectl patchbay hub resume.
	ConditionHubMismatch = "HubMismatch"
)

// Conditions of an Assignment.
const (
	// ConditionPlaced: the targets are what policy and clusters ask for.
	ConditionPlaced = "Placed"
	// ConditionRendered: every target's Work has the present object.
	ConditionRendered = "Rendered"
	// ConditionMoveBlocked: a move waits; the message says for what.
	ConditionMoveBlocked = "MoveBlocked"
)

// Conditions of a Placement, ClusterPlacement or Customization.
const (
	// ConditionValid: it can be used; else the message names field and value.
	ConditionValid = "Valid"
)

// Conditions of a Work; those of its manifests have the same names.
const (
	// ConditionApplied: the cluster has what the Work says.
	ConditionApplied = "Applied"
	// ConditionReady: the objects are ready, as kstatus computes it.
	ConditionReady = "Ready"
	// ConditionOrphaned, of an AppliedWork: the hub's Work is gone without an order;
	// the objects are kept.
	ConditionOrphaned = "Orphaned"
)

// Reasons of conditions and Events that users see.
const (
	// ReasonUnschedulable: no cluster, or too few, have room. The message counts.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNoPolicy: no policy and no annotation selects the object any more. It stays
	// where it is until a person orders its removal.
	ReasonNoPolicy = "NoPolicy"
	// ReasonNoClustersRequested: the annotation is empty: no cluster is to have the object.
	ReasonNoClustersRequested = "NoClustersRequested"
	// ReasonNoClusterSelected: the policy selects no cluster that exists and may be used.
	ReasonNoClusterSelected = "NoClusterSelected"
	// ReasonWaitingForCluster: a cluster that is to have the object has not been seen yet,
	// or does not report. The message names it.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonVolumesRefused: the object has volumes of its own in a cluster, and stays there.
	// The message names the claim.
	ReasonVolumesRefused = "VolumesRefused"
	// ReasonTooManyTargets: more than MaxTargets clusters are to have the object.
	ReasonTooManyTargets = "TooManyTargets"
	// ReasonAssignmentLost: the Assignment of an object that takes this one along was
	// deleted by somebody. This one stays until the hub has made that Assignment again.
	ReasonAssignmentLost = "AssignmentLost"
	// ReasonDrainBlocked: objects cannot leave a cluster that is being drained. The message
	// names some of them.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonNamespaceTaken: the namespace of a Cluster was not made by the hub. The hub grants no
	// rights in it and sends nothing there.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceMissing: the namespace was deleted of a Cluster that is to have
	// the object. The hub makes it again.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonRecordLost: the cluster has no record of an object that is to be removed, and
	// what is there cannot be told to be that object.
	ReasonRecordLost = "RecordLost"
	// ReasonRemovalBlocked: the object is being deleted in the cluster, and something there
	// holds it, such as a finalizer. The message names it.
	ReasonRemovalBlocked = "RemovalBlocked"
	// ReasonPolicyTie: two policies of the same rank select the object.
	ReasonPolicyTie = "PolicyTie"
	// ReasonUnknownCluster: a cluster that is named does not exist.
	ReasonUnknownCluster = "UnknownCluster"
	// ReasonNotPlaceable: objects of this kind stay at the hub.
	ReasonNotPlaceable = "NotPlaceable"
	// ReasonInvalidAnnotation: ClustersAnnotation cannot be read.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonInvalidRule: a rule of a Customization does not compile or failed.
	ReasonInvalidRule = "InvalidRule"
	// ReasonTooLarge: the rendered manifest is larger than MaxManifestBytes.
	ReasonTooLarge = "TooLarge"
	// ReasonConflict: a field of the object in the cluster has another owner.
	ReasonConflict = "Conflict"
	// ReasonRefused: the cluster, or its admin's list of kinds, refuses the object.
	ReasonRefused = "Refused"
	// ReasonRemoved: the hub ordered the removal and it is done.
	ReasonRemoved = "Removed"
	// ReasonDeletedInCluster: what runs once was deleted in the cluster by somebody else.
	ReasonDeletedInCluster = "DeletedInCluster"
	// ReasonAsExpected: nothing is left to do.
	ReasonAsExpected = "AsExpected"
	// ReasonProgressing: it is being done.
	ReasonProgressing = "Progressing"
)
