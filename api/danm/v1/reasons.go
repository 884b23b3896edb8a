// SPDX-License-Identifier: Apache-2.0

package v1

import "slices"

// Reasons of conditions, Events and CNI errors. Reasons has what each one means, and
// docs/reference/reasons.md lists them.
const (
	ReasonLinksUp                  = "LinksUp"
	ReasonLinksNotUp               = "LinksNotUp"
	ReasonDelegateInstalled        = "DelegateInstalled"
	ReasonDelegateNotInstalled     = "DelegateNotInstalled"
	ReasonNoNodeReports            = "NoNodeReports"
	ReasonNetworkValid             = "Valid"
	ReasonNetworkInvalid           = "Invalid"
	ReasonLinkTaken                = "LinkTaken"
	ReasonParentShared             = "ParentShared"
	ReasonPoolOverlap              = "PoolOverlap"
	ReasonAddressesSufficient      = "AddressesSufficient"
	ReasonAddressesNearlyExhausted = "AddressesNearlyExhausted"
	ReasonAddressesExhausted       = "AddressesExhausted"
	ReasonAwaitingNodes            = "AwaitingNodes"
	ReasonRecovered                = "Recovered"
	ReasonTooManyRollbacks         = "TooManyRollbacks"
	ReasonDuplicateAddress         = "DuplicateAddress"
	ReasonBitmapDamaged            = "BitmapDamaged"
	ReasonBitmapRebuilt            = "BitmapRebuilt"
	ReasonBitmapRebuildFailed      = "BitmapRebuildFailed"
	ReasonAddressTaken             = "AddressTaken"
	ReasonAddressOutsideNetwork    = "AddressOutsideNetwork"
	ReasonNetworkWithoutSubnet     = "NetworkWithoutSubnet"
	ReasonNetworkDeleting          = "NetworkDeleting"
	ReasonSubnetChanged            = "SubnetChanged"
	ReasonAddressInUse             = "AddressInUse"
	ReasonInvalidNetwork           = "InvalidNetwork"
	ReasonNetworkNotFound          = "NetworkNotFound"
	ReasonNetworkNotReady          = "NetworkNotReady"
	ReasonDeviceNotAllocated       = "DeviceNotAllocated"
	ReasonDeviceInUse              = "DeviceInUse"
	ReasonNetworkAttachmentFailed  = "NetworkAttachmentFailed"
	ReasonForgedDanmEp             = "ForgedDanmEp"
	ReasonNoDefaultNetwork         = "NoDefaultNetwork"
	ReasonPluginNotCalled          = "PluginNotCalled"
	ReasonDefaultNetworkExists     = "DefaultNetworkExists"
	ReasonNodeConfigurationUsed    = "NodeConfigurationUsed"
	ReasonLinkFailed               = "LinkFailed"
	ReasonLinkUp                   = "LinkUp"
	ReasonLinkRestored             = "LinkRestored"
	ReasonNetworkRefused           = "NetworkRefused"
	ReasonNotIsolated              = "NotIsolated"
	ReasonIsolated                 = "Isolated"
	ReasonFilterInPlace            = "FilterInPlace"
	ReasonNoVXLAN                  = "NoVXLAN"
	ReasonFilterNotSupported       = "FilterNotSupported"
	ReasonFilterFailed             = "FilterFailed"
	ReasonTagsNotFiltered          = "TagsNotFiltered"
	ReasonSourcesNotGuarded        = "SourcesNotGuarded"
	ReasonVTEPsInRange             = "InRange"
	ReasonVTEPsOutOfRange          = "OutOfRange"
	ReasonDanmEpMoved              = "DanmEpMoved"
	ReasonDanmEpOrphaned           = "DanmEpOrphaned"
	ReasonDanmEpNotCreated         = "DanmEpNotCreated"
	ReasonNetworkNotAllowed        = "NetworkNotAllowed"
	ReasonAddressWithheld          = "AddressWithheld"
	ReasonEndpointsNotWritten      = "EndpointsNotWritten"
	ReasonUnsupportedService       = "UnsupportedService"
	ReasonInvalidAnnotations       = "InvalidAnnotations"
	ReasonLikelyMistake            = "LikelyMistake"
)

// ReasonInfo documents a reason.
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
	return slices.Concat(networkReasons(), addressReasons(), podReasons(), defaultNetworkReasons(), deviceReasons(), danmEpReasons(), hostLinkReasons(), isolationReasons(), serviceReasons())
}

// networkReasons returns the reasons of networks, without those of their addresses.
func networkReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonLinksUp, On: "Ready of networks and NodeNetworks",
			When:   "The network's link is up on all nodes, or all links of the node are up.",
			Remedy: "Nothing.",
			Test:   "controller/internal/networks.TestReadyOverAllNodes",
		},
		{
			Reason: ReasonLinksNotUp, On: "Ready of networks and NodeNetworks",
			When:   "Links are not up. The message has the number of nodes on which the network's link is up, and the problems of the others.",
			Remedy: "Do what the message says on the nodes that it names, or see their NodeNetworks.",
			Test:   "controller/internal/networks.TestReasonsOfReady",
		},
		{
			Reason: ReasonDelegateInstalled, On: "Ready of networks of another CNI plugin",
			When:   "All nodes have the plugin and the configuration of the network, and its link, if it has one, is up.",
			Remedy: "Nothing.",
			Test:   "controller/internal/networks.TestReadyOfDelegates",
		},
		{
			Reason: ReasonDelegateNotInstalled, On: "Ready of networks of another CNI plugin, and of NodeNetworks",
			When:   "Nodes do not have the plugin or the configuration of the network, or its link is not up.",
			Remedy: "Do what the message says on the nodes that it names: correct NetworkType, install the plugin in --cni-bin-dir, or write the configuration in --cni-conf-dir.",
			Test:   "controller/internal/networks.TestReadyOfDelegates",
		},
		{
			Reason: ReasonNoNodeReports, On: "Ready of networks, with status Unknown",
			When:   "No node has reported its links.",
			Remedy: "Check that patchbayd runs.",
			Test:   "controller/internal/networks.TestReasonsOfReady",
		},
		{
			Reason: ReasonNetworkValid, On: "Ready of networks",
			When:   "A network that broke a rule was corrected.",
			Remedy: "Nothing.",
			Test:   "daemon/internal/networkcache.TestNetworkConditionsClearInvalid",
		},
		{
			Reason: ReasonNetworkInvalid, On: "Ready of networks",
			When:   "The network breaks a rule that is newer than it. No Pod can attach.",
			Remedy: "Change the field that the message names.",
			Test:   "daemon/internal/networkcache.TestConditionIsCurrent",
		},
		{
			Reason: ReasonLinkTaken, On: "Conflict of networks",
			When:   "An older network has a link of the same name or identity.",
			Remedy: "Do what the message says, or delete one of the networks.",
			Test:   "controller/internal/webhook.TestConflictReasons",
		},
		{
			Reason: ReasonParentShared, On: "Conflict of networks",
			When:   "An older network uses the same parent with another backend or mode, and the kernel allows one.",
			Remedy: "Use the same type, or another parent.",
			Test:   "controller/internal/webhook.TestConflictReasons",
		},
		{
			Reason: ReasonPoolOverlap, On: "Conflict of networks",
			When:   "An older network would allocate the same addresses.",
			Remedy: "Make the allocation pools disjoint.",
			Test:   "controller/internal/webhook.TestConflictReasons",
		},
	}
}

// addressReasons returns the reasons of the networks' addresses.
func addressReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonAddressesSufficient, On: "AddressesAvailable of networks, Event",
			When:   "Less than 90 % of the dynamic addresses are in use or pre-allocated.",
			Remedy: "Nothing.",
			Test:   "controller/internal/addresses.TestReasonsOfPools",
		},
		{
			Reason: ReasonAddressesNearlyExhausted, On: "AddressesAvailable of networks, Event",
			When:   "90 % or more of the dynamic addresses are in use or pre-allocated.",
			Remedy: "Widen allocation_pool or, if it has all of the subnet, the subnet before it is exhausted.",
			Test:   "controller/internal/addresses.TestReasonsOfPools",
		},
		{
			Reason: ReasonAddressesExhausted, On: "AddressesAvailable of networks with status False, Events on networks and Pods",
			When:   "All dynamic addresses are in use or pre-allocated. New Pods wait.",
			Remedy: "Delete Pods, or widen allocation_pool or, if it has all of the subnet, the subnet. kubelet retries.",
			Test:   "controller/internal/addresses.TestPoolsThatRunOut",
		},
		{
			Reason: ReasonAwaitingNodes, On: "Recovering of networks, Event",
			When:   "The network's status is older than a node's record, as after a restore of etcd. No address is allocated before each node has reported.",
			Remedy: "Start the daemons of the nodes that the message names, or exclude a node that is off: kubectl patchbay ipam skip NODE.",
			Test:   "controller/internal/addresses.TestRecoveryWaitsForEveryNode",
		},
		{
			Reason: ReasonRecovered, On: "Event on networks",
			When:   "All nodes have reported, and addresses are allocated again.",
			Remedy: "Nothing.",
			Test:   "controller/internal/addresses.TestRecoveryWaitsForEveryNode",
		},
		{
			Reason: ReasonTooManyRollbacks, On: "RecoveryDeferred of networks, Event",
			When:   "A node has started so many recoveries that its reports start none for a time.",
			Remedy: "If etcd was not restored that often, check the node for a compromise.",
			Test:   "controller/internal/addresses.TestHostileNodeAndRecoveries",
		},
		{
			Reason: ReasonDuplicateAddress, On: "AddressConflict of networks, Events on networks and Pods",
			When:   "Two Pods, or a Pod and another node, have the same address.",
			Remedy: "Delete one of the Pods that the message names.",
			Test:   "controller/internal/addresses.TestDuplicatesAreReported",
		},
		{
			Reason: ReasonBitmapDamaged, On: "Event on networks",
			When:   "Bits of addresses in use were clear. They are corrected.",
			Remedy: "If it happens again, find in the audit log the node that writes status.ipam.",
			Test:   "controller/internal/addresses.TestClearedBitsComeBack",
		},
		{
			Reason: ReasonBitmapRebuilt, On: "Event on networks",
			When:   "The bitmap was rebuilt on request.",
			Remedy: "Nothing.",
			Test:   "controller/internal/addresses.TestRebuildOnRequest",
		},
		{
			Reason: ReasonBitmapRebuildFailed, On: "Event on networks",
			When:   "The rebuild that was requested failed. It is tried again.",
			Remedy: "Do what the message says.",
			Test:   "controller/internal/addresses.TestEventsAreCut",
		},
	}
}

// podReasons returns the reasons of Events about Pods that are not attached, or not as intended.
func podReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonAddressTaken, On: "Event on Pods",
			When:   "Another Pod has the static address.",
			Remedy: "Request another address, or delete the Pod that has it.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonAddressOutsideNetwork, On: "Event on Pods",
			When:   "The static address is reserved, such as that of a gateway or a node, or the network's subnet was changed and does not contain it any more.",
			Remedy: "Request an address that the message allows.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonNetworkWithoutSubnet, On: "Event on Pods",
			When:   "An address is requested of a family of which the network has no subnet.",
			Remedy: `Request "none" for this family, or give the network a subnet.`,
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonNetworkDeleting, On: "Event on Pods",
			When:   "The network is being deleted.",
			Remedy: "Use another network.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonSubnetChanged, On: "Event on Pods",
			When:   "The network's subnet was changed while Pods have addresses of the one before.",
			Remedy: "Delete these Pods, or change the subnet back.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonAddressInUse, On: "Events on networks and Pods",
			When:   "Another machine on the network answers for the address. The address is in quarantine for an hour.",
			Remedy: "Find the machine by the MAC address in the message.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonLikelyMistake, On: "Event on the controller of Pods, such as a ReplicaSet",
			When:   "A Pod of the controller works, and probably not as intended. A user who creates such a Pod gets the same text as a warning.",
			Remedy: "Change what the message names in the Pod template.",
			Test:   "controller/internal/webhook.TestPodMistakesOfControllers",
		},
		{
			Reason: ReasonInvalidNetwork, On: "Events on Pods and Services",
			When:   "A network of the Pod or Service breaks a rule, such as one that is newer than it.",
			Remedy: "Change the field that the message names.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonNetworkNotFound, On: "Events on Pods and Services",
			When:   "A network of the Pod or Service does not exist.",
			Remedy: "Create the network, or correct the annotation.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonNetworkNotReady, On: "Event on Pods",
			When:   "The network cannot be used at the moment, because the API server or kubelet does not answer, patchbayd has just started, or a virtual function has not returned to the host yet.",
			Remedy: "Nothing: kubelet retries. If it stays, see the conditions of the network.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
		{
			Reason: ReasonNetworkAttachmentFailed, On: "Event on Pods",
			When:   "The node has no NIC for the network, or the kernel or another CNI plugin returned an error.",
			Remedy: "Do what the message says.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
	}
}

// defaultNetworkReasons returns the reasons about Pods without an annotation.
func defaultNetworkReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonNoDefaultNetwork, On: "Event on Pods; DefaultNetwork of NodeNetworks with status False",
			When:   "Pods without annotation danm.io/interfaces have no network: no network named default is for them, and the node has no valid CNI configuration beside Patchbay's that they may use, or not the one of flag --default-delegate of patchbayd.",
			Remedy: "Do what the message says: install a CNI plugin, correct its configuration or the name of its file, or create a ClusterNetwork default.",
			Test:   "netwatcher.TestDefaultNetworkCondition",
		},
		{
			Reason: ReasonPluginNotCalled, On: "Ready of NodeNetworks",
			When:   "The container runtime uses the CNI configuration of another plugin for new Pods: Patchbay's file is missing, or it is not the first in the order of names.",
			Remedy: "Do what the message says. Next to Cilium, set cni.exclusive to false.",
			Test:   "netwatcher.TestReadyIfRuntimeCallsPatchbay",
		},
		{
			Reason: ReasonDefaultNetworkExists, On: "DefaultNetwork of NodeNetworks",
			When:   "Pods without annotation danm.io/interfaces get the ClusterNetwork default, or that of their namespace.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestDefaultNetworkCondition",
		},
		{
			Reason: ReasonNodeConfigurationUsed, On: "DefaultNetwork of NodeNetworks",
			When:   "There is no ClusterNetwork default: Pods without annotation danm.io/interfaces get the CNI configuration that status.nodeConfiguration names.",
			Remedy: "Nothing. To choose the network yourself, create a ClusterNetwork default, or name the configuration's file in defaultDelegate of the Installation.",
			Test:   "netwatcher.TestDefaultNetworkCondition",
		},
	}
}

// deviceReasons returns the reasons about devices of Pods.
func deviceReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonDeviceNotAllocated, On: "Event on Pods",
			When:   "Kubelet has allocated fewer devices of a network's device pool to the Pod than it has interfaces of that pool.",
			Remedy: "Delete the Pod, and request as many of the resource in its template. If it does, the device plugin was away when the Pod came to the node: deleting the Pod is enough.",
			Test:   "daemon/internal/attach.TestTooFewDevices",
		},
		{
			Reason: ReasonDeviceInUse, On: "Event on Pods",
			When:   "Another Pod still has the device that kubelet has allocated to this one, as after a loss of kubelet's checkpoint; or one device is part of two device pools.",
			Remedy: "Nothing if the other Pod ends: kubelet retries. Otherwise delete one of the Pods. For two pools, correct the device plugin's configuration.",
			Test:   "daemon/internal/attach.TestDeviceHasOneOwner",
		},
	}
}

// hostLinkReasons returns the reasons of the host links in NodeNetworks.
func hostLinkReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonLinkFailed, On: "Event on NodeNetworks",
			When:   "Links differ from the networks.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestLinkEvents",
		},
		{
			Reason: ReasonLinkUp, On: "Event on NodeNetworks",
			When:   "Links are as the networks want them again.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestLinkEvents",
		},
		{
			Reason: ReasonLinkRestored, On: "Event on NodeNetworks",
			When:   "Another program or user deleted links. They were created again.",
			Remedy: "Find who deletes links of the node.",
			Test:   "netwatcher.TestLinkEvents",
		},
		{
			Reason: ReasonNetworkRefused, On: "Ready of NodeNetworks, Event",
			When:   "A network has no link on this node.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestLinkEvents",
		},
		{
			Reason: ReasonNotIsolated, On: "Event on NodeNetworks",
			When:   "The condition Isolated is False.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestLinkEvents",
		},
		{
			Reason: ReasonIsolated, On: "Event on NodeNetworks",
			When:   "The condition Isolated is True again.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestLinkEvents",
		},
	}
}

// isolationReasons returns the reasons of the packet filters in NodeNetworks.
func isolationReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonFilterInPlace, On: "Isolated of NodeNetworks",
			When:   "VXLAN packets are received from the other nodes only.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestIsolated",
		},
		{
			Reason: ReasonNoVXLAN, On: "Isolated of NodeNetworks",
			When:   "No network has a VXLAN on this node.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestIsolated",
		},
		{
			Reason: ReasonFilterNotSupported, On: "Isolated of NodeNetworks with status False",
			When:   "The kernel cannot filter VXLAN packets: any Pod and any host of the underlay can send into the node's VXLANs.",
			Remedy: "Use a kernel with nf_tables, or no VXLANs on this node.",
			Test:   "netwatcher.TestIsolated",
		},
		{
			Reason: ReasonFilterFailed, On: "Isolated of NodeNetworks with status False",
			When:   "The filter of VXLAN packets could not be written. It is tried again.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestIsolated",
		},
		{
			Reason: ReasonTagsNotFiltered, On: "Isolated of NodeNetworks with status False",
			When:   "Tagged frames of Pods are not dropped.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestIsolated",
		},
		{
			Reason: ReasonSourcesNotGuarded, On: "Isolated of NodeNetworks with status False",
			When:   "Pods can send with other source addresses.",
			Remedy: "Do what the message says.",
			Test:   "netwatcher.TestNoSourceGuard",
		},
		{
			Reason: ReasonVTEPsInRange, On: "VTEPsAccepted of NodeNetworks",
			When:   "The node uses all other nodes' VTEPs.",
			Remedy: "Nothing.",
			Test:   "netwatcher.TestRefusedVTEP",
		},
		{
			Reason: ReasonVTEPsOutOfRange, On: "VTEPsAccepted of NodeNetworks with status False",
			When:   "The node ignores VTEPs that are outside of its subnets and of --vtep-ranges.",
			Remedy: "If the addresses in the log of patchbayd are correct, add them to --vtep-ranges.",
			Test:   "netwatcher.TestRefusedVTEP",
		},
	}
}

// danmEpReasons returns the reasons of Events about DanmEps, on their Pods and Nodes.
func danmEpReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonForgedDanmEp, On: "Event on Pods",
			When:   "A node that is not the Pod's created a DanmEp for it. The DanmEp was removed.",
			Remedy: "Check that node for a compromise.",
			Test:   "controller/internal/addresses.TestForgedDanmEpsAreRemoved",
		},
		{
			Reason: ReasonDanmEpMoved, On: "Event on Nodes",
			When:   "A DanmEp without Pod blocked the deletion of its namespace. The controller moved it into its own.",
			Remedy: "Start the daemon of the Node, or delete the Node.",
			Test:   "controller/internal/addresses.TestForgedDanmEpsKeepNoNamespace",
		},
		{
			Reason: ReasonDanmEpOrphaned, On: "Event on Nodes",
			When:   "A DanmEp without Pod blocks the deletion of its namespace.",
			Remedy: "Start the daemon of the Node, or delete the Node.",
			Test:   "controller/internal/addresses.TestDanmEpsThatStay",
		},
		{
			Reason: ReasonDanmEpNotCreated, On: "DanmEpsMissing of NodeNetworks",
			When:   "Pods have been attached for more than 30 s, and the API server rejects their DanmEps, such as for a quota, or does not answer. The message names the Pods and the error. Services do not reach them, and an uninstallation waits for them.",
			Remedy: "Remove the cause: the node creates the DanmEps within a minute. Or delete the Pods.",
			Test:   "daemon/internal/danmep.TestReporter",
		},
	}
}

// serviceReasons returns the reasons of Services, some of which Pods have, too.
func serviceReasons() []ReasonInfo {
	return []ReasonInfo{
		{
			Reason: ReasonNetworkNotAllowed, On: "Events on Pods and Services",
			When:   "A network does not allow the namespace of the Pod or Service.",
			Remedy: "Use another network, or ask a netadmin to add the namespace to AllowedTenants.",
			Test:   "test/services.TestNetworksAndNamespaces",
		},
		{
			Reason: ReasonAddressWithheld, On: "Event on Services",
			When:   "An address of a Pod is not published, because the message's rule protects it.",
			Remedy: "Do what the message says.",
			Test:   "test/services.TestVictimsAreNotPublished",
		},
		{
			Reason: ReasonEndpointsNotWritten, On: "Event on Services",
			When:   "The API server rejects the EndpointSlices or Endpoints.",
			Remedy: "Do what the message says.",
			Test:   "controller/internal/services.TestSuccessfulWriteEndsARejection",
		},
		{
			Reason: ReasonUnsupportedService, On: "Event on Services",
			When:   "The Service has a type that cannot have endpoints on networks.",
			Remedy: "Change the type as the message says.",
			Test:   "svcwatcher.TestJudge",
		},
		{
			Reason: ReasonInvalidAnnotations, On: "Events on Pods and Services",
			When:   "An annotation of the Pod or Service breaks a rule, or the Pod has more devices of a pool than interfaces. A Service keeps its endpoints.",
			Remedy: "Correct what the message names. A Pod's annotation is read when its sandbox is created: correct its template, and delete the Pod.",
			Test:   "daemon/internal/pods.TestEventReason",
		},
	}
}
