// SPDX-License-Identifier: Apache-2.0

// Package clusterranges knows which addresses the cluster itself uses: for Pods (the Nodes'
// spec.podCIDRs), for Services (ServiceCIDRs, and the Service "kubernetes"), for nodes
// (their status and NodeNetworks) and for API servers. Admission and svcwatcher ask this
// one source, so that they cannot disagree.
//
// A CNI plugin that manages Pod addresses by itself, such as Calico, sets no podCIDRs:
// its ranges are given by a flag of the controller.
package clusterranges
