// SPDX-License-Identifier: Apache-2.0

// Package migration moves one object from the clusters that have it to the clusters that are to have it, one
// step at a time. The same state machine handles assignment, moves, drains, new divisions, scaling and
// removal, which differ only in the desired targets.
//
// Step computes the next requests from what is desired, requested and reported. It has no state: the caller
// stores the output and passes it in again. Therefore a lost write or a killed caller does not matter.
//
// # Reports
//
// Step knows a cluster by its reports only. A replica counts as available when all reports of the last Stable
// say so, the newest one belongs to the present request, and the cluster is reachable. A report is older than
// the Pods that have become available meanwhile, so the real number is never smaller, unless Pods fail by
// themselves. A replica counts as unavailable when all reports of the last Stable say so, and it has been
// requested for as long. What lies between is unknown, and counts as neither.
//
// # Make before break
//
//   - It gives replicas back to a cluster that has lost them in this move, when too few are left that may be
//     available: desired − unavailable. The target's Fallback is how many it may have again.
//   - It scales up, within the surge.
//   - It scales down only what stays covered: after each step, the sum over clusters of the smaller one of
//     available and requested replicas is at least desired − unavailable. Below that, it removes nothing but
//     replicas that count as unavailable.
//   - One step of a move removes at most a quarter of the desired replicas, of those that do not count as
//     unavailable. The next step counts only on clusters that have reported after it. A plain scale-down has
//     no such limit, and a single cluster scales down at once, as a Deployment does.
//   - A cluster that is not wanted gets the order to remove the object when it has had no replicas for
//     Settle, and the others have enough; for objects without replicas, when all other clusters have been
//     ready for Stable. The order ends the possibility to give replicas back.
//
// # Autoscalers
//
// Where autoscalers own the replicas of an object, FollowAutoscalers says how many a move must keep available: what
// they run when it begins, and what they add. The targets are divided from that number. A cluster whose autoscaler the
// hub cannot bound loses its replicas AllAtOnce, when the others have all.
//
// # Break before make
//
// It orders the removal first, and starts nothing before that is carried out.
//
// # Orders
//
// The order is withdrawn for a cluster that is wanted again before it has carried out the order. A cluster
// that is not in the inventory gets no order, unless no cluster is wanted.
//
// An unreachable cluster may still run the object: its replicas count as requested, not as available. It is
// not scaled down, because it would do so at an unknown later time. When it is assumed lost, its replicas
// count as neither, and are replaced elsewhere. It still gets no order: it is Draining until it returns.
//
// The package is pure: no I/O, no clock, no log.
package migration
