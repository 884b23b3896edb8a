// SPDX-License-Identifier: Apache-2.0

package v1

// ConditionReady of a network says whether Pods can use it: on which nodes its link
// is up, or what is wrong with its definition.
const ConditionReady = "Ready"

// Reasons of a network's ConditionReady that patchbay-controller writes.
const (
	// ReasonLinksUp: the network's link is up on all nodes.
	ReasonLinksUp = "LinksUp"
	// ReasonLinksNotUp: the message says on how many nodes it is, and what is wrong
	// with the others.
	ReasonLinksNotUp = "LinksNotUp"
	// ReasonNoNodes, with status Unknown: no node has reported its links.
	ReasonNoNodes = "NoNodeReports"
)
