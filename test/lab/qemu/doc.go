// SPDX-License-Identifier: Apache-2.0

// Package qemu boots guests that have what User-Mode Linux cannot have: PCI devices, with
// SR-IOV functions and an IOMMU, and more than one processor. It runs Debian's kernel in QEMU,
// which simulates the processor (no KVM), so programs run five to twenty times slower than on the
// machine. scripts/install-sriov gets both.
//
// The kernel begins with an initial RAM file system that only mounts the machine's files (9p)
// and starts the guest's init in them. All other drivers are modules, which the guest loads
// with modprobe.
package qemu
