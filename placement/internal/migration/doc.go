// SPDX-License-Identifier: Apache-2.0

// Package migration moves one object from the clusters that have it to the clusters that are to have it, one
// step at a time. The same state machine handles assignment, moves, drains, new divisions, scaling and
// removal, which differ only in the desired targets.
//
// Step computes the next requests from what is desired, requested and reported. It has no state: the caller
// stores the output and passes it in again. Therefore a lost write or a killed caller does not matter.
//
// Make before break:
//
//   - It scales up first, within the surge.
//   - It scales down only what stays covered: after each step, the sum over clusters of the smaller one of
//     available and requested replicas is at least desired − unavailable. A report is older than the Pods
//     that have become available meanwhile, so the real sum is never smaller.
//   - A cluster that is not wanted gets the order to remove the object when it has had no replicas for
//     Settle; for objects without replicas, when all other clusters are ready.
//
// Break before make orders the removal first, and starts nothing before that is carried out.
//
// The order is withdrawn for a cluster that is wanted again before it has carried out the order. A cluster
// that is not in the inventory gets no order, unless no cluster is wanted.
//
// An unreachable cluster may still run the object: its replicas count as requested, not as available. It is
// not scaled down, because it would do so at an unknown later time.
//
// The package is pure: no I/O, no clock, no log.
package migration
