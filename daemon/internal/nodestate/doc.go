// SPDX-License-Identifier: Apache-2.0

// Package nodestate reads this node's Node object and the NodeNetworks of all nodes, and
// writes this node's NodeNetwork.
//
// NodeState decides whether the daemon may hand out addresses of its warm pool: it may while
// a read found the Node in the last 10 minutes. The controller frees the unused addresses of
// a deleted Node after 15 minutes.
package nodestate
