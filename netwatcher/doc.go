// SPDX-License-Identifier: Apache-2.0

// Package netwatcher keeps a node's VLAN and VXLAN links as the networks need
// them.
//
// Desired turns all networks and the node's NICs into links, Diff compares them
// with what is there, Status says how it stands: all three are pure. The
// Reconciler runs them whenever a network, another node or a link changes, and
// now and then, over a Kernel and a Cluster that others implement.
//
// A link's identity is (device, VLAN) or (VNI), of which the kernel has one each.
// The oldest network with an identity names the link, the others ride on it. Who
// wants a name or an identity for something else than an older network gets an
// error; nobody can break an older network. A link that Pods are on is neither
// removed nor made anew, and no link without our mark is touched.
package netwatcher
