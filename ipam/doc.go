// SPDX-License-Identifier: Apache-2.0

// Package ipam has the data structures of address management: a sparse bitmap of the addresses in
// use in one subnet of any size with next-fit search, sets of addresses as text ranges, and a
// lock-free set for a warm pool.
//
// A Pool is not safe for concurrent use. It is decoded from a network's status, changed, and encoded
// again. The package has no I/O, no clock and no log.
package ipam
