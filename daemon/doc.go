// SPDX-License-Identifier: Apache-2.0

// Package daemon is the program patchbayd. It is the node daemon: it attaches Pods to networks and keeps
// the node's VLAN and VXLAN links. It runs as a DaemonSet, see deployments/.
package daemon
