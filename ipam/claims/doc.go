// SPDX-License-Identifier: Apache-2.0

// Package claims is the cluster side of address management: what one node
// writes into status.ipam of the networks, and in which order.
//
// A set bit is always covered by a node's entry in held, by a DanmEp, or by a
// reservation, and every step keeps that true:
//
//   - Claim sets the bit and adds the address to the node's entry in one write.
//   - Published says that the DanmEp exists: the address leaves the entry with
//     the next write, or after a short idle time; its bit stays.
//   - Return puts the address back into the entry, before the DanmEp goes.
//   - Free, and Discard for what was never used, clear bit and entry in one write.
//   - Collect frees what nobody covers: a quorum read, then a consistent list of
//     DanmEps, then a write with that read's resourceVersion.
//   - A network in deletion keeps its finalizer until its status has no node's entry
//     and then no DanmEp names it. Only the Steward takes it off: a node gives back
//     what it covers, and cannot see what others do.
//
// All claims and releases that wait for a network become one write (group
// commit) with the resourceVersion of the object that was planned on. There is
// no lease, no leader and no lock object. After a conflict, and after any answer
// that leaves open whether the write was applied, the object is read again and
// everything planned afresh; the node's own entry tells what was applied.
//
// A node keeps some addresses ready, its hold: the shelf of a desk. A claim takes
// from it without a lock and without a request. How many follows demand (water), is
// none in a scarce pool, and goes back when another node finds the pool exhausted
// (pressure), when nobody claims for a while, and at an orderly end (GiveBack). An
// address leaves the shelf before the write that gives it back is sent. Released
// addresses rest in the node's entry before they are ready again.
//
// An object that is older than what the node knows was restored from a backup. The
// node reports the rollback in its entry (lookBack), which stops all claims, and marks
// what it has in use with the same write. The Steward starts a recovery, and ends it when
// every node has said what it has in use there. What nodes cannot do for each other, the
// Steward does for the controller.
package claims
