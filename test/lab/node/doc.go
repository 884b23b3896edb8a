// SPDX-License-Identifier: Apache-2.0

// Package node is a bare-metal node of a lab: a machine with a kernel (User-Mode
// Linux, or one in QEMU), a disk and network cards of its own, with containerd and kubelet.
//
// Its files are the machine's, with /etc, /opt and /var overlaid by its own disk, so
// that manifests with host paths run on it unchanged. Killing the node is a power
// cut: what was on its disk is there when it starts again, nothing else is.
package node
