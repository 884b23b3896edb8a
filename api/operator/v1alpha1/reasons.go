// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reasons of conditions and Events. Reasons has what each one means, and
// docs/reference/operator-reasons.md lists them.
const (
	ReasonValid           = "Valid"
	ReasonInvalid         = "Invalid"
	ReasonVersionMismatch = "VersionMismatch"

	ReasonApplied             = "Applied"
	ReasonApplyFailed         = "ApplyFailed"
	ReasonTerminating         = "Terminating"
	ReasonAnotherInstallation = "AnotherInstallation"
	ReasonWaitingForNode      = "WaitingForNode"

	ReasonReady          = "Ready"
	ReasonProgressing    = "Progressing"
	ReasonNotReady       = "NotReady"
	ReasonRolloutStopped = "RolloutStopped"
	ReasonFewerNodes     = "FewerNodes"

	ReasonPodsAttached        = "PodsAttached"
	ReasonDetachingPods       = "DetachingPods"
	ReasonRemovingNode        = "RemovingNode"
	ReasonNodesNotCleanedUp   = "NodesNotCleanedUp"
	ReasonRemovingPrograms    = "RemovingPrograms"
	ReasonRemovingFinalizers  = "RemovingFinalizers"
	ReasonRemovingDefinitions = "RemovingDefinitions"
	ReasonUninstallFailed     = "UninstallFailed"
	ReasonUninstalled         = "Uninstalled"

	ReasonCleanedUp          = "CleanedUp"
	ReasonCleanedUpUnderPods = "CleanedUpUnderPods"
	ReasonCleanUpFailed      = "CleanUpFailed"
)

// ReasonInfo documents a reason. It has the fields of the type of danm.io, so that the same code
// renders and tests all catalogues.
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
	return append(append(specReasons(), partReasons()...), uninstallReasons()...)
}

// specReasons returns the reasons of Valid and Applied.
func specReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonValid, On: "Valid of Installations",
			When:   "The spec can work.",
			Remedy: "Nothing.",
			Test:   "operator.TestInstall",
		},
		{
			Reason: ReasonInvalid, On: "Valid of Installations with status False, Event on the Installation",
			When:   "A program cannot work with the spec: the message names each field and what it must be. The operator changes nothing, and repairs nothing.",
			Remedy: "Correct the fields.",
			Test:   "operator.TestInvalidTemplate",
		},
		{
			Reason: ReasonVersionMismatch, On: "Valid of Installations with status False, Event on the Installation",
			When:   "spec.version is not the version of the operator that runs, or a newer operator has installed Patchbay. The operator changes nothing.",
			Remedy: "Install the operator of that version, or change or remove spec.version. To go back to an earlier version, see docs/operator.md.",
			Test:   "operator/internal/controllers.TestValidCondition",
		},
		{
			Reason: ReasonApplied, On: "Applied of Installations",
			When:   "All objects are as the spec says.",
			Remedy: "Nothing.",
			Test:   "operator.TestInstall",
		},
		{
			Reason: ReasonApplyFailed, On: "Applied of Installations with status False, Event on the Installation",
			When:   "The API server did not accept an object, or did not answer. The objects that come after it in the order of installation were not changed. The operator tries again.",
			Remedy: "Read the message: it names the object. If a field of a template is the cause, correct it. If the operator has not the right, apply deployments/operator of its version, also after the namespace patchbay-system was deleted.",
			Test:   "operator/internal/controllers.TestAppliedCondition",
		},
		{
			Reason: ReasonTerminating, On: "Applied of Installations with status False, Event on the Installation",
			When:   "Objects that the operator applies are being deleted, such as a CustomResourceDefinition with all its networks. The message names each of them with its finalizers. All other objects are applied. The operator applies these again when they are gone.",
			Remedy: "Back up the networks of a definition that should not be deleted: its deletion cannot be stopped. If it does not end, look at what the finalizers wait for, such as Pods on a network, or another program.",
			Test:   "operator.TestTerminatingDefinition",
		},
		{
			Reason: ReasonAnotherInstallation, On: "Applied and Uninstalled of Installations with status False, Event on the Installation",
			When:   "Patchbay is installed in another namespace, or without this Installation. The operator changes and removes nothing, because both would use the same node files and the same cluster-scoped objects.",
			Remedy: "Uninstall the other one, or delete the Installation.",
			Test:   "operator.TestAnotherInstallation",
		},
		{
			Reason: ReasonWaitingForNode, On: "Applied and Controller of Installations with status False",
			When:   "The image of the controller changes, and Pods of the node daemon run another image than the spec's. The controller and what follows it are not changed before the last one is replaced, because an older daemon cannot write networks of a newer controller. The message names the nodes.",
			Remedy: "Nothing, unless the condition Node has the reason RolloutStopped: remove that cause.",
			Test:   "operator.TestControllerWaitsForNodes",
		},
	}
}

// partReasons returns the reasons of the parts and of Ready.
func partReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonReady, On: "Node, Controller, PlacementAgent and Ready of Installations",
			When:   "All Pods of the part have the present template and are ready. Of Ready: so are all parts.",
			Remedy: "Nothing.",
			Test:   "operator/internal/rollout.TestDaemonSetProgress",
		},
		{
			Reason: ReasonProgressing, On: "Applied, Node, Controller, PlacementAgent and Ready of Installations with status False",
			When:   "Pods are being replaced, or are not ready yet. The message has how many are. Of Applied: the node daemon has just started on more than one node, and Kubernetes would replace all of these at once.",
			Remedy: "Nothing. With the update strategy OnDelete, delete the Pods that have an earlier template.",
			Test:   "operator/internal/rollout.TestDaemonSetProgress",
		},
		{
			Reason: ReasonNotReady, On: "Node, Controller, PlacementAgent and Ready of Installations with status False",
			When:   "All Pods have the present template, and some fail or are not ready in time. The message has the causes. Or no node matches the template of the node daemon.",
			Remedy: "Look at the Pods that the message names: kubectl -n patchbay-system describe pod NAME. If no node matches, correct nodeSelector, affinity or tolerations.",
			Test:   "operator/internal/rollout.TestDaemonSetProgress",
		},
		{
			Reason: ReasonRolloutStopped, On: "Node, Controller, PlacementAgent and Ready of Installations with status False, Event on the Installation",
			When:   "A Pod with the present template fails, has restarted, or was not ready in time, or Kubernetes creates no Pod. No further node gets the template.",
			Remedy: "The message names node, Pod and cause. Correct the spec or undo its change: the failed Pods are replaced first. If the node is the cause, repair it. If there is no Pod, kubectl -n patchbay-system describe daemonset patchbayd has the cause, such as a ServiceAccount that does not exist.",
			Test:   "operator/internal/rollout.TestDaemonSetProgress",
		},
		{
			Reason: ReasonFewerNodes, On: "Event on the Installation",
			When:   "The node daemon is for fewer nodes than before. Kubernetes removes it at once from nodes that nodeSelector, affinity or tolerations do not match; Pods do not start there any more.",
			Remedy: "Nothing, if you have removed Nodes. If you have changed one of these fields, undo that.",
			Test:   "operator/internal/controllers.TestFewerNodes",
		},
	}
}

// uninstallReasons returns the reasons of an uninstallation.
func uninstallReasons() []ReasonInfo {
	return append([]ReasonInfo{
		{
			Reason: ReasonPodsAttached, On: "Uninstalled and Ready of Installations with status False, Event on the Installation",
			When:   "The Installation is being deleted while Pods are attached to networks. Some of these Pods may have no DanmEp: their nodes report them in the condition DanmEpsMissing. Until these Pods are gone, the operator removes nothing, or, if the uninstallation is forced, no CustomResourceDefinition.",
			Remedy: "Delete the Pods that the message names, or force it: kubectl patchbay uninstall --force.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonDetachingPods, On: "Uninstalled and Ready of Installations with status False",
			When:   "Pods are gone, and their nodes have not detached them yet. The message names the nodes.",
			Remedy: "Nothing. If a node does not run any more, delete its Node object, or force the uninstallation.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonRemovingNode, On: "Uninstalled, Ready and Applied of Installations with status False",
			When:   "The node daemons stop. Each returns its pre-allocated addresses, and removes CNI configuration and host links. The message names the nodes that have not finished. Of Applied: the DaemonSet is being deleted, and is applied again when it is gone.",
			Remedy: "Nothing. If a node does not run any more, delete its Node object, or force the uninstallation. Of Applied: delete the Pod of a node that is off.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonNodesNotCleanedUp, On: "Uninstalled and Ready of Installations with status False, Event on the Installation",
			When:   "The daemons of the nodes in the message have stopped, and have not reported that they have cleaned up.",
			Remedy: "Remove 00-patchbay.conflist from the node's folder of CNI configurations, and the host links of Patchbay. Then delete the node's NodeNetwork, or force the uninstallation.",
			Test:   "operator/internal/uninstall.TestNext",
		},
	}, laterUninstallReasons()...)
}

// laterUninstallReasons returns the reasons after the nodes are done, and those of nodes.
func laterUninstallReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonRemovingPrograms, On: "Uninstalled and Ready of Installations with status False",
			When:   "Webhooks, controller, agent, rights and policies are removed, in this order. Rights are removed when the Pods of the programs that the operator has installed have ended.",
			Remedy: "Nothing. If it does not end, the message names the Pods with their ReplicaSet, or the objects with their finalizers: delete the ReplicaSet if it has lost its Deployment, and remove the finalizer of a program that does not run any more.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonRemovingFinalizers, On: "Uninstalled and Ready of Installations with status False",
			When:   "The finalizers of Patchbay are removed from networks and DanmEps, so that they can be deleted without it.",
			Remedy: "Nothing.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonRemovingDefinitions, On: "Uninstalled and Ready of Installations with status False",
			When:   "The CustomResourceDefinitions are being deleted, with all their objects, as the annotation operator.patchbay.io/remove-definitions requests.",
			Remedy: "Nothing. If it does not end, the message names the objects that have a finalizer of another program: remove it if that program does not run any more.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonUninstallFailed, On: "Uninstalled and Ready of Installations with status False, Event on the Installation",
			When:   "The API server rejected a step, or did not answer. The operator tries again.",
			Remedy: "Read the message. If the operator has not the right, apply deployments/operator of its version.",
			Test:   "operator/internal/controllers.TestUninstallStatus",
		},
		{
			Reason: ReasonUninstalled, On: "Uninstalled of Installations, Ready with status False, Event on the Installation",
			When:   "All objects that were applied are removed. The message has what stays. The Installation is gone a moment later.",
			Remedy: "Nothing.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonCleanedUp, On: "CleanedUp of NodeNetworks",
			When:   "The node's daemon has stopped for an uninstallation, and has removed its CNI configuration and its host links. The message has what stays because Pods use it.",
			Remedy: "Nothing.",
			Test:   "daemon.TestCleanedUp",
		},
		{
			Reason: ReasonCleanedUpUnderPods, On: "CleanedUp of NodeNetworks",
			When:   "As CleanedUp, and sandboxes with networks were left on the node. They keep their interfaces. The message names the first five of their Pods.",
			Remedy: "Delete these Pods. The uninstallation has not named those that were attached in the 30 s before it and have no DanmEp.",
			Test:   "daemon.TestCleanedUp",
		},
		{
			Reason: ReasonCleanUpFailed, On: "CleanedUp of NodeNetworks with status False",
			When:   "The node's daemon has stopped for an uninstallation, and could not remove something.",
			Remedy: "Remove on the node what the message names, then delete the NodeNetwork.",
			Test:   "daemon.TestCleanedUp",
		},
	}
}
