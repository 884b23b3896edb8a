// SPDX-License-Identifier: Apache-2.0

// Package ipam is the arithmetic of address management: a sparse bitmap of the
// addresses in use in one subnet of any size, next-fit search in it, and ranges
// of addresses as text.
//
// A Pool is neither safe for concurrent use nor connected to anything: it is
// decoded from a network's status, changed, and encoded again. The package has
// no I/O, no clock and no log.
package ipam
