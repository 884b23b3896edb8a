// SPDX-License-Identifier: Apache-2.0

// Package lab runs a whole Kubernetes cluster on one machine as it is on bare metal:
// a real control plane, and nodes with kernels, disks and network cards of their own
// that are joined by a trunk.
//
// A lab has a name, by which every command and test finds it again: its network
// namespace is pb-<name>, its folder /run/patchbay-lab/<name>, its nodes' disks are in
// /var/tmp/patchbay-lab/<name>. Labs of different names do not see each other. Up may
// be repeated, after a crash too; Down removes whatever there is.
//
// Tests call Start, which collects every log in one folder when the test fails.
package lab
