// SPDX-License-Identifier: Apache-2.0

// Package uml boots User-Mode Linux: a Linux kernel with IPVLAN, VLAN and VXLAN that runs
// as an ordinary process. The kernel is built from Debian's linux-source with linux.config
// (scripts/build-linux); where there is none, Debian's own kernel is the fallback.
package uml
