// SPDX-License-Identifier: Apache-2.0

// Package clusterranges watches which addresses the cluster itself uses: for Pods (spec.podCIDRs of
// Nodes), for Services (ServiceCIDRs, and the Service "kubernetes"), for nodes (their status and
// NodeNetworks) and for API servers. Admission and svcwatcher use this one source, so that they
// agree.
//
// A CNI plugin that manages Pod addresses itself, such as Calico, sets no podCIDRs: its ranges are
// a flag of the controller.
package clusterranges
