// SPDX-License-Identifier: Apache-2.0

// Package daemon is the program patchbayd, the node daemon. It attaches Pods to networks and manages
// the node's VLAN and VXLAN links. It runs as a DaemonSet, see deployments/.
package daemon
