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
	// ConditionHubMismatch: the agent works for another hub, or for a later state of
	// this one, and touches nothing.
	ConditionHubMismatch = "HubMismatch"
	// ConditionConflicting: fields of some objects belong to somebody else there.
	ConditionConflicting = "Conflicting"
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
	// ReasonOrdered: the hub ordered the removal and it is done.
	ReasonOrdered = "Ordered"
	// ReasonGone: what runs once was deleted in the cluster by somebody else.
	ReasonGone = "Gone"
	// ReasonSettled: nothing is left to do.
	ReasonSettled = "Settled"
	// ReasonProgressing: it is being done.
	ReasonProgressing = "Progressing"
)

// Limits of machine-owned objects.
const (
	// MaxTargets is the largest number of clusters of one Assignment.
	MaxTargets = 500
	// MaxManifestBytes is the largest rendered manifest, as JSON.
	MaxManifestBytes = 192 << 10
)
