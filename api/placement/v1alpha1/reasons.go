// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// Reasons of conditions and Events. Reasons has what each one means, and
// docs/reference/placement-reasons.md lists them.
const (
	ReasonUnschedulable       = "Unschedulable"
	ReasonNoPolicy            = "NoPolicy"
	ReasonNoClustersRequested = "NoClustersRequested"
	ReasonNoClusterSelected   = "NoClusterSelected"
	ReasonWaitingForCluster   = "WaitingForCluster"
	ReasonVolumesRefused      = "VolumesRefused"
	ReasonRunsOnce            = "RunsOnce"
	ReasonTooManyTargets      = "TooManyTargets"
	ReasonAssignmentLost      = "AssignmentLost"
	ReasonDrainBlocked        = "DrainBlocked"
	ReasonNamespaceTaken      = "NamespaceTaken"
	ReasonNamespaceMissing    = "NamespaceMissing"
	ReasonRecordLost          = "RecordLost"
	ReasonRemovalBlocked      = "RemovalBlocked"
	ReasonPolicyTie           = "PolicyTie"
	ReasonUnknownCluster      = "UnknownCluster"
	ReasonNotPlaceable        = "NotPlaceable"
	ReasonInvalidAnnotation   = "InvalidAnnotation"
	ReasonInvalidRule         = "InvalidRule"
	ReasonTooLarge            = "TooLarge"
	ReasonConflict            = "Conflict"
	ReasonRefused             = "Refused"
	ReasonRemoved             = "Removed"
	ReasonDeletedInCluster    = "DeletedInCluster"
	ReasonAsExpected          = "AsExpected"
	ReasonProgressing         = "Progressing"
	ReasonStalled             = "Stalled"
	ReasonMoveBlocked         = "MoveBlocked"
	ReasonRolledBack          = "RolledBack"
	ReasonNotStretched        = "NotStretched"
	ReasonAddressConflict     = "AddressConflict"
	ReasonEndpointsTruncated  = "EndpointsTruncated"
	ReasonTrafficRefused      = "TrafficRefused"
	ReasonInvalidSelector     = "InvalidSelector"
	ReasonInvalidReplicas     = "InvalidReplicas"
	ReasonValid               = "Valid"
	ReasonAccepted            = "Accepted"
	ReasonClusterAccepted     = "ClusterAccepted"
	ReasonHeartbeatReceived   = "HeartbeatReceived"
	ReasonHeartbeatLost       = "HeartbeatLost"
	ReasonNeverJoined         = "NeverJoined"
	ReasonAwaitingAcceptance  = "AwaitingAcceptance"
	ReasonAppliedWorksUnknown = "AppliedWorksUnknown"
	ReasonDraining            = "Draining"
	ReasonDrained             = "Drained"
	ReasonPinned              = "Pinned"
	ReasonRequired            = "Required"
	ReasonHubMismatch         = "HubMismatch"
	ReasonOrphaned            = "Orphaned"
	ReasonDeclaredLost        = "DeclaredLost"
	ReasonReportedSince       = "ReportedSince"
)

// ReasonInfo documents a reason. It has the fields of the type of danm.io, so that the same code
// renders and tests both catalogues.
// +kubebuilder:object:generate=false
type ReasonInfo struct {
	// Reason is its text.
	Reason string
	// On names the condition and its kinds, or the kinds of the Events' objects.
	On string
	// When states what has happened, and Remedy what to do.
	When, Remedy string
	// Test is the test that expects the reason: the package's folder, a dot, and the function.
	Test string
}

// Reasons returns the catalogue of all reasons.
func Reasons() []ReasonInfo {
	return slices.Concat(sharedReasons(), policyReasons(), placedReasons(), renderedReasons(), moveReasons(), workReasons(), removalReasons(), clusterReasons(), drainReasons(), trafficReasons())
}

// sharedReasons returns the reasons that conditions of several kinds have.
func sharedReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonAsExpected, On: "Placed, Rendered, MoveBlocked and TrafficMerged of Assignments, Applied and Ready of Works, HubMismatch of Clusters",
			When:   "The object is in the desired state: no move waits, and no Work is halted.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonProgressing, On: "MoveBlocked of Assignments, Applied and Ready of Works, with status False",
			When:   "A move makes steps, the agent retries to apply or remove the object, or the object is not ready yet. The message of Applied has the cause.",
			Remedy: "Nothing, unless the message of Applied names an object that is missing, such as a ServiceAccount: place it with the object.",
			Test:   "placement/agent/internal/works.TestAgentFetchesSecrets",
		},
		{
			Reason: ReasonHubMismatch, On: "HubMismatch of Clusters and AppliedWorks with status True, Applied of Works and AppliedWorks with status False, Event on the placed object",
			When:   "A Work does not continue the record in the cluster, because the hub was restored from a backup, or is another hub. The object stays as it is. In the whole cluster the agent removes nothing, and creates nothing new.",
			Remedy: "List what differs with kubectl patchbay hub resume --take=cluster at the hub, and follow docs/placement.md, section After the hub was restored from a backup.",
			Test:   "placement/agent/internal/works.TestComputeStatuses",
		},
	}
}

// policyReasons returns the reasons of mistakes in annotations and policies. Objects stay where they are.
func policyReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonValid, On: "Valid of Placements, ClusterPlacements and Customizations",
			When:   "The hub finds no mistake in the policy.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/controllers.TestBadRules",
		},
		{
			Reason: ReasonUnknownCluster, On: "Valid of Placements and ClusterPlacements and Placed of Assignments, with status False, Event on the policy or the placed object",
			When:   "The policy or the annotation names a Cluster that does not exist. The object stays where it is.",
			Remedy: "Correct the name in the field that the message names. kubectl patchbay cluster list shows the names of all Clusters.",
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonNotPlaceable, On: "Valid of Placements and ClusterPlacements, Rendered of Assignments of Secrets, with status False, Event on the policy or the Secret",
			When:   "The policy names a kind whose objects stay at the hub, or the Secret is the token of a ServiceAccount, which is valid at the hub only.",
			Remedy: "Remove the kind from spec.objects of the policy. For a token, remove the annotation or leave the Secret out of the policy, and create the token in the cluster.",
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonPolicyTie, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "Two Placements, or two ClusterPlacements, select the object. It stays where it is.",
			Remedy: "Leave the object out of spec.objects of one of the two that the message names, or set the annotation placement.patchbay.io/clusters of the object.",
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonInvalidAnnotation, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The value of the annotation placement.patchbay.io/clusters, conflict or on-delete breaks a rule. The object stays where it is.",
			Remedy: `Name clusters, such as "east,west", or give each of them a number, such as "east=3,west=1". conflict must be Adopt, on-delete Orphan or Delete.`,
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonInvalidSelector, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "A label selector of a policy is invalid. The object stays where it is.",
			Remedy: "Correct the selector in the policy and the field that the message names.",
			Test:   "placement/internal/policy.TestResolve",
		},
		{
			Reason: ReasonInvalidReplicas, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The replicas cannot be divided, because the object has more than 1,000,000, or the policy has a max below the min of the same cluster. The object stays where it is.",
			Remedy: "Change spec.replicas of the object, or spec.replicas.min or spec.replicas.max of the policy, as the message says.",
			Test:   "placement/internal/policy.TestPlanRejectsReplicas",
		},
	}
}

// placedReasons returns the other reasons of the condition Placed.
func placedReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonNoClustersRequested, On: "Placed of Assignments",
			When:   "No cluster is to have the object: its annotation is empty, it is being deleted, or no object that it follows needs it any more.",
			Remedy: "Nothing. To place the object, name clusters in its annotation placement.patchbay.io/clusters.",
			Test:   "placement/hub/internal/controllers.TestLostPolicyRemovesNothing",
		},
		{
			Reason: ReasonNoPolicy, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "No policy and no annotation selects the object any more, or those that are left would remove it from a cluster where it runs. It stays where it is.",
			Remedy: "Create the policy again, or set the annotation placement.patchbay.io/clusters of the object. To remove the object from its clusters, run kubectl patchbay remove KIND/NAME.",
			Test:   "placement/hub/internal/controllers.TestLostPolicyRemovesNothing",
		},
		{
			Reason: ReasonNoClusterSelected, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The policy selects no Cluster that is accepted. The object stays where it is.",
			Remedy: "Change spec.clusters of the policy, label a Cluster as its selector requires, or accept one: kubectl patchbay cluster accept NAME.",
			Test:   "placement/hub/internal/controllers.TestLostPolicyRemovesNothing",
		},
		{
			Reason: ReasonUnschedulable, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The selected clusters have no room for the object, or for some of its replicas. What runs without a place elsewhere stays. The message has the numbers, and for each full cluster its limit, what its nodes lack, or why it does not run more replicas.",
			Remedy: "Raise spec.limits of a Cluster that the message names or spec.replicas.max of the policy, end a drain, add nodes, or select more clusters.",
			Test:   "placement/hub/internal/controllers.TestLimits",
		},
		{
			Reason: ReasonWaitingForCluster, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "A selected cluster has never reported, has stopped reporting, is not accepted or is being deleted, and the object or some of its replicas wait for it. An object that must run in one cluster at a time also waits for a lost cluster that has it. The message names the cluster.",
			Remedy: "Find the cluster in kubectl patchbay cluster list, and start its agent or accept it: kubectl patchbay cluster accept NAME. Or select other clusters.",
			Test:   "placement/internal/policy.TestPlan",
		},
		{
			Reason: ReasonVolumesRefused, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The object, or replicas of it, would leave a cluster that has data in a PersistentVolumeClaim of the object, and the volume does not move. The message says why.",
			Remedy: "Select the cluster that the message names again, in spec.clusters of the policy or in the annotation.",
			Test:   "placement/internal/policy.TestPlan",
		},
		{
			Reason: ReasonRunsOnce, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "A Job or a Pod has started in a cluster, or may have, and is requested elsewhere or to leave. It does not run a second time, so it stays where it is, and does not start again where it was removed or deleted. The message names the cluster.",
			Remedy: "Wait until it has finished. To run it in another cluster, delete it and create it again, or create another one.",
			Test:   "placement/internal/policy.TestPlanOfStarted",
		},
		{
			Reason: ReasonTooManyTargets, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "More than 500 clusters would have the object. Clusters that it is leaving count, too.",
			Remedy: "Select fewer clusters in spec.clusters of the policy, or wait until the object has left others.",
			Test:   "placement/hub/internal/desiredstate.TestTooManyTargets",
		},
		{
			Reason: ReasonAssignmentLost, On: "Placed of Assignments with status False, Event on the placed object",
			When:   "The hub does not know whether another object needs this one, because the Assignment of that object was deleted, or objects of its kind cannot be listed. This object stays where it is.",
			Remedy: "Nothing: the hub creates the Assignment again. If the message names a kind, find out why kubectl get KIND -A fails at the hub, such as a conversion webhook that does not answer.",
			Test:   "placement/hub/internal/controllers.TestUnknownDependents",
		},
	}
}

// renderedReasons returns the reasons of the condition Rendered.
func renderedReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonInvalidRule, On: "Valid of Customizations and Rendered of Assignments, with status False, Event on the Customization or the placed object",
			When:   "A rule of a Customization does not compile, fails for the object or changes what it must not, or the Customizations of a namespace exceed their budget. Clusters keep the object as it was rendered last.",
			Remedy: "Correct the rule whose Customization, index and path the message has, or delete Customizations of the namespace.",
			Test:   "placement/hub/internal/controllers.TestBadRules",
		},
		{
			Reason: ReasonTooLarge, On: "Rendered of Assignments and Applied of Works, with status False, Event on the placed object",
			When:   "The rendered object or the data of the Secret have more than 192 KiB, or the cluster's record of the Work would be too large. The cluster keeps what it has.",
			Remedy: "Take data out of the object, or divide it into several.",
			Test:   "placement/hub/internal/controllers.TestMistakesLeaveTheLastGoodState",
		},
		{
			Reason: ReasonNamespaceMissing, On: "Rendered of Assignments with status False, Event on the placed object",
			When:   "The namespace of a target's Cluster was deleted, so that the hub cannot write the Work.",
			Remedy: "Nothing: the hub creates the namespace again. If it stays, find in kubectl get namespace cluster-NAME -o yaml what blocks its deletion.",
			Test:   "placement/hub/internal/controllers.TestDeletedNamespaceIsCreatedAgain",
		},
	}
}

// moveReasons returns the reasons of moves.
func moveReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonStalled, On: "MoveBlocked of Assignments with status True",
			When:   "A move has waited for the cause that the message has, such as replicas that are not available in the new cluster: for 30 s, or twice move.stable and 10 s if that is longer. Pods that stop get their grace period besides.",
			Remedy: "Find the cluster that the message names in status.clusters of the Assignment, and correct what its message or its broken Pods report: kubectl get assignment -o yaml.",
			Test:   "placement/hub/internal/desiredstate.TestBlockedIsReportedLate",
		},
		{
			Reason: ReasonMoveBlocked, On: "Event on the placed object",
			When:   "The condition MoveBlocked of the object's Assignment has become True.",
			Remedy: "As for Stalled.",
			Test:   "placement/hub/internal/desiredstate.TestWarnings",
		},
		{
			Reason: ReasonRolledBack, On: "Event on the placed object",
			When:   "Replicas have failed in a new cluster while an old one was losing its replicas: the hub has given the old cluster as many back as are missing. The move goes on, and reports must last twice as long from then on.",
			Remedy: "Find out why replicas fail in the clusters that the message names. To stop the move, set the annotation placement.patchbay.io/clusters to the old cluster.",
			Test:   "placement/hub/internal/controllers.TestMoveRollsBack",
		},
	}
}

// workReasons returns the reasons of Works that the agent cannot apply.
func workReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonConflict, On: "Applied of Works and AppliedWorks with status False, Event on the placed object",
			When:   "Another field manager owns a field of the object in the cluster, or the object existed there before and is not the agent's. It stays as it was.",
			Remedy: "In the policy, name a field that others may own in spec.apply.yield, or set spec.apply.conflict: Force to take it. To adopt an existing object, set spec.apply.conflict: Adopt, and label it in the cluster: kubectl label KIND NAME placement.patchbay.io/access=adopt.",
			Test:   "placement/agent/internal/works.TestAgentConflicts",
		},
		{
			Reason: ReasonRefused, On: "Applied of Works and AppliedWorks with status False, Event on the placed object",
			When:   "The cluster's admin has not allowed the object, or the cluster's API server or a webhook forbids it or rejects its removal.",
			Remedy: "Run in the cluster the kubectl label command of the message, or grant there what the API server's answer names. If a removal is rejected, allow it, or delete the object in the cluster.",
			Test:   "placement/agent/internal/works.TestAdminAllows",
		},
		{
			Reason: ReasonDeletedInCluster, On: "Applied of Works and AppliedWorks with status False",
			When:   "A Pod or Job was deleted in the cluster without an order of the hub, or the order was taken back after the deletion had begun, or the agent stopped while it created the object, and there is none. The agent does not create it again, because it must not run twice.",
			Remedy: "Nothing for a Pod: the hub deletes its Pod, too, and the Pod's controller creates another one. To run a Job again, delete it at the hub, and create it again.",
			Test:   "placement/agent/internal/works.TestAgentCreatesNoSecondPod",
		},
		{
			Reason: ReasonOrphaned, On: "Orphaned of AppliedWorks",
			When:   "The hub has no Work for the record any more, and has not ordered the removal of its objects. The agent keeps and repairs them.",
			Remedy: "Place the object at the hub again. To remove it, delete the AppliedWork in the cluster (kubectl get appliedworks), then the object.",
			Test:   "placement/agent/internal/works.TestComputeStatuses",
		},
	}
}

// removalReasons returns the reasons of Works whose objects the hub has ordered to remove.
func removalReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonRemoved, On: "Applied of Works with status False",
			When:   "The hub ordered the removal of the object, and the cluster does not have it any more, or keeps it unmanaged.",
			Remedy: "Nothing: the hub deletes the Work.",
			Test:   "placement/agent/internal/works.TestAgentRemoves",
		},
		{
			Reason: ReasonRemovalBlocked, On: "Applied of Works with status False, Event on the placed object",
			When:   "A finalizer of the object or of one of its Pods blocks the deletion, or Pods have not ended in time. The message names what blocks.",
			Remedy: "Make sure that the controller of the finalizer runs, or remove the finalizer in the cluster. If Pods do not end, check their nodes, and that kube-controller-manager runs.",
			Test:   "placement/agent/internal/works.TestAgentReportsBlockedRemovals",
		},
		{
			Reason: ReasonRecordLost, On: "Applied of Works with status False, Event on the placed object",
			When:   "The cluster has no record of the object to remove, and the live object lacks the agent's label or annotations, or has another UID than the order.",
			Remedy: "In the cluster, delete the object, or keep it: kubectl label --overwrite KIND NAME placement.patchbay.io/managed=false.",
			Test:   "placement/agent/internal/works.TestAgentRemovesWithoutRecords",
		},
	}
}

// clusterReasons returns the reasons of Clusters, and of the certificates of their agents.
func clusterReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonAccepted, On: "Accepted of Clusters",
			When:   "An infrastructure admin has accepted the Cluster.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/clusters.TestAcceptedCondition",
		},
		{
			Reason: ReasonAwaitingAcceptance, On: "Accepted of Clusters with status False",
			When:   "An infrastructure admin has not accepted the Cluster. Its agent gets no certificate, and the cluster no new objects.",
			Remedy: "Run kubectl patchbay cluster accept NAME at the hub.",
			Test:   "placement/hub/internal/clusters.TestAcceptedCondition",
		},
		{
			Reason: ReasonNamespaceTaken, On: "Accepted and Reachable of Clusters with status False, Event on Clusters",
			When:   "Another client created the namespace of the Cluster. The hub grants no rights in it and creates no Works there.",
			Remedy: "Delete the namespace, or hand it over to the hub with the kubectl annotate command of the message.",
			Test:   "placement/hub/internal/clusters.TestAcceptedCondition",
		},
		{
			Reason: ReasonClusterAccepted, On: "Approved of CertificateSigningRequests",
			When:   "The hub approves the certificate of an agent, because its Cluster is accepted.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/controllers.TestCertificates",
		},
		{
			Reason: ReasonHeartbeatReceived, On: "Reachable of Clusters",
			When:   "The hub has seen a new heartbeat of the Cluster's agent in the last 40 s.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/clusters.TestReachableCondition",
		},
		{
			Reason: ReasonHeartbeatLost, On: "Reachable of Clusters with status False",
			When:   "The Cluster's agent has stopped reporting, or its heartbeat was deleted. The cluster keeps its objects, and may still run.",
			Remedy: "Check that patchbay-agent runs in the cluster, and reaches the hub. If objects should run elsewhere after a time, set spec.offline.assumeLostAfter of the policy.",
			Test:   "placement/hub/internal/clusters.TestReachableCondition",
		},
		{
			Reason: ReasonNeverJoined, On: "Reachable of Clusters with status False",
			When:   "No agent of the Cluster has reported yet.",
			Remedy: "Run kubectl patchbay hub token NAME at the hub, and in the cluster the command that it prints. Then accept the Cluster: kubectl patchbay cluster accept NAME.",
			Test:   "placement/hub/internal/clusters.TestReachableCondition",
		},
		{
			Reason: ReasonDeclaredLost, On: "DeclaredLost of Clusters, Event on Clusters",
			When:   "An admin has declared the silent Cluster lost (spec.declaredLost). Other clusters run what it had, also what must run in one cluster at a time.",
			Remedy: "Keep the cluster's machines off. If the cluster may still run workloads, run kubectl patchbay cluster declare-lost NAME --undo.",
			Test:   "placement/hub/internal/clusters.TestDeclaredLostCondition",
		},
		{
			Reason: ReasonReportedSince, On: "DeclaredLost of Clusters with status False, Event on Clusters",
			When:   "The Cluster has reported after it was declared lost. The declaration no longer applies, and the cluster loses what others have taken over.",
			Remedy: "Check what has run twice meanwhile. Then run kubectl patchbay cluster declare-lost NAME --undo.",
			Test:   "placement/hub/internal/clusters.TestDeclaredLostCondition",
		},
	}
}

// drainReasons returns the reasons of Clusters that are being drained.
func drainReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonDraining, On: "Drained of Clusters with status False",
			When:   "Objects leave the cluster. The message has how many are left.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/clusters.TestDrainedCondition",
		},
		{
			Reason: ReasonDrainBlocked, On: "Drained of Clusters with status False, Event on Clusters",
			When:   "Objects cannot leave the cluster, or have not left by spec.drain.deadline, or the cluster has AppliedWorks without a Work at the hub. The message names objects, each with its reason; status.drain has the messages.",
			Remedy: "Do what this page has for the reason of each object. For AppliedWorks, do what it has for Orphaned.",
			Test:   "placement/hub/internal/clusters.TestDrainedCondition",
		},
		{
			Reason: ReasonAppliedWorksUnknown, On: "Drained of Clusters with status Unknown",
			When:   "The hub has no object for the cluster any more, and the agent does not report how many AppliedWorks are left.",
			Remedy: "Start the cluster's agent. If it runs, update it.",
			Test:   "placement/hub/internal/clusters.TestDrainedCondition",
		},
		{
			Reason: ReasonDrained, On: "Drained of Clusters",
			When:   "The agent of the cluster has no AppliedWork left, but those of DaemonSets that may be in no other cluster, and of what these need.",
			Remedy: "Nothing.",
			Test:   "placement/hub/internal/clusters.TestDrainedCondition",
		},
		{
			Reason: ReasonPinned, On: "status.drain of Clusters",
			When:   "The annotation or the policy of the object allows no cluster but the one that is being drained.",
			Remedy: "Name another cluster in the annotation or the policy, or delete the object.",
			Test:   "placement/hub/internal/clusters.TestDrainProgress",
		},
		{
			Reason: ReasonRequired, On: "status.drain of Clusters",
			When:   "An object that does not leave the cluster needs this one.",
			Remedy: "Do what this page has for the reason of the object that the message names.",
			Test:   "placement/hub/internal/clusters.TestDrainProgress",
		},
	}
}

// trafficReasons returns the reasons of Services on stretched ClusterNetworks.
func trafficReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonNotStretched, On: "TrafficMerged of Assignments with status False",
			When:   "A ClusterNetwork of the Service has the annotation placement.patchbay.io/stretched, and the clusters have it with another VLAN, VXLAN or subnet, or with pools that overlap. No endpoint of the network is merged.",
			Remedy: "Give the ClusterNetwork the same vlan or vxlan and the same subnet in the clusters that the message names, and each cluster an allocation_pool of its own by a Customization.",
			Test:   "placement/hub/internal/desiredstate.TestServiceTraffic",
		},
		{
			Reason: ReasonAddressConflict, On: "TrafficMerged of Assignments with status False",
			When:   "Two clusters report the same address, or a cluster reports an address in the pool of another one. The address goes to no other cluster.",
			Remedy: "Delete the Pod that has the address without being entitled to it, and change its static address.",
			Test:   "placement/hub/internal/desiredstate.TestServiceTraffic",
		},
		{
			Reason: ReasonEndpointsTruncated, On: "TrafficMerged of Assignments with status False",
			When:   "The Service has more than 500 ready addresses in one cluster, or in all others of a cluster, or more than 32 combinations of workload and ports. The rest goes to no other cluster.",
			Remedy: "Divide the Pods between several Services.",
			Test:   "placement/hub/internal/desiredstate.TestServiceTraffic",
		},
		{
			Reason: ReasonTrafficRefused, On: "TrafficMerged of Assignments with status False",
			When:   "A cluster cannot have the EndpointSlices with the endpoints of other clusters: the message has the cause that the agent reports.",
			Remedy: "Correct the cause: give the agent the right that it lacks, or delete the EndpointSlice that the message names, which has another owner.",
			Test:   "placement/hub/internal/desiredstate.TestServiceTraffic",
		},
	}
}
