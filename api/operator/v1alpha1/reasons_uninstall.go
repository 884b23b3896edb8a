// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reasons of the conditions Uninstalled of Installations and CleanedUp of NodeNetworks, and of Events.
const (
	ReasonPodsAttached        = "PodsAttached"
	ReasonDetachingPods       = "DetachingPods"
	ReasonRemovingNode        = "RemovingNode"
	ReasonNodesNotCleanedUp   = "NodesNotCleanedUp"
	ReasonRemovingPrograms    = "RemovingPrograms"
	ReasonRemovingFinalizers  = "RemovingFinalizers"
	ReasonRemovingDefinitions = "RemovingDefinitions"
	ReasonUninstallFailed     = "UninstallFailed"
	ReasonUninstalled         = "Uninstalled"

	ReasonCleanedUp     = "CleanedUp"
	ReasonCleanUpFailed = "CleanUpFailed"
)

// uninstallReasons returns the reasons of an uninstallation.
func uninstallReasons() []ReasonInfo {
	return append([]ReasonInfo{
		{
			Reason: ReasonPodsAttached, On: "Uninstalled and Ready of Installations with status False, Event on the Installation",
			When:   "The Installation is being deleted while Pods are attached to networks. Nothing is removed, unless the message says that it had begun.",
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
			Reason: ReasonRemovingNode, On: "Uninstalled and Ready of Installations with status False",
			When:   "The node daemons stop. Each returns its pre-allocated addresses, and removes CNI configuration and host links. The message names the nodes that have not finished.",
			Remedy: "Nothing. If a node does not run any more, delete its Node object, or force the uninstallation.",
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
			When:   "Webhooks, controller, agent, rights and policies are removed, in this order.",
			Remedy: "Nothing.",
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
			Remedy: "Nothing. If it does not end, an object has a finalizer of another program: remove that.",
			Test:   "operator/internal/uninstall.TestNext",
		},
		{
			Reason: ReasonUninstallFailed, On: "Uninstalled and Ready of Installations with status False, Event on the Installation",
			When:   "The API server rejected a step, or did not answer. The operator tries again.",
			Remedy: "Read the message. If the operator has not the right, apply deployments/operator of its version.",
			Test:   "operator/internal/controllers.TestUninstallStatus",
		},
		{
			Reason: ReasonUninstalled, On: "Event on the Installation",
			When:   "All objects that were applied are removed. The message has what stays.",
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
			Reason: ReasonCleanUpFailed, On: "CleanedUp of NodeNetworks with status False",
			When:   "The node's daemon has stopped for an uninstallation, and could not remove something.",
			Remedy: "Remove on the node what the message names, then delete the NodeNetwork.",
			Test:   "daemon.TestCleanedUp",
		},
	}
}
