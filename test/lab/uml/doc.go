// SPDX-License-Identifier: Apache-2.0

// Package uml boots User-Mode Linux: a Linux kernel with IPVLAN, VLAN and VXLAN that runs
// as an ordinary process. The kernel is built from Debian's linux-source with linux.config
// (scripts/build-linux); where there is none, Debian's own kernel is the fallback.
//
// The guest's root is the machine's own file system, read-only; what the guest
// writes goes where its guest.Spec mounts something. A guest is several processes
// on the machine. The kernel's carry the guest's folder on their command line, which
// is how they are found again, even when nobody remembers having started them.
package uml
