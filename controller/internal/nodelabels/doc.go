// SPDX-License-Identifier: Apache-2.0

// Package nodelabels keeps the labels nics.danm.io/<NIC> on Nodes, as the nodes' NodeNetworks report their
// NICs. Admission adds node affinity for these labels, and users select Nodes by them.
//
// A missing label keeps Pods away from a node, and kubelet ends a Pod that does not match its node when kubelet
// restarts. Therefore a label is added at once, and removed only when the NIC has not been reported for a
// while.
package nodelabels
