// SPDX-License-Identifier: Apache-2.0

// Package controller is the program patchbay-controller. It does what a cluster needs once, and not
// on each node: it serves the admission webhooks, audits networks' addresses and counts them, cleans up
// after deleted Nodes, maintains the conditions of networks, lists networks in NetworkViews, labels
// Nodes with their NICs, and makes the EndpointSlices of Services. It runs as a Deployment of two
// replicas with leader election, see deployments/.
package controller
