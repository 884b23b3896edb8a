// SPDX-License-Identifier: Apache-2.0

// Package netwatcher creates a node's VLAN and VXLAN links, as the networks need them.
//
// Desired computes the links from all networks and the node's NICs, Diff compares them with
// the existing links, and newStatus describes the difference. All three are pure functions. The
// Reconciler runs them when a network, another node or a link changes, and at least once a
// minute.
//
// A link's identity is (device, VLAN) or (VNI): the kernel allows one link for each. The
// oldest network with an identity names the link, and the others use it. If two networks
// request the same name or identity with different settings, the older network wins and the
// younger one reports an error. A link with Pods on it is neither deleted nor created again,
// and a link that Patchbay does not manage is not changed.
package netwatcher
