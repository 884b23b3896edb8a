// SPDX-License-Identifier: Apache-2.0

// Package allocator claims and releases the addresses of one node. It writes status.ipam of
// the networks, in an order that keeps each address covered.
//
// A set bit is always covered by a node's entry in status.ipam.held, by a DanmEp, or by a
// reservation, and every step keeps that true:
//
//   - Claim sets the bit and adds the address to the node's entry in one write.
//   - MarkPublished records that the DanmEp exists: the address leaves the entry with the
//     next write, or after a short idle time; its bit stays.
//   - ReturnToEntry puts the address back into the entry, before the DanmEp goes.
//   - Free, and Discard for an address that was never used, clear bit and entry in one write.
//   - CollectGarbage frees what nothing covers: a quorum read, then a consistent list of
//     DanmEps, then a write with that read's resourceVersion.
//   - A network in deletion keeps its finalizer until its status has no node's entry and no
//     DanmEp names it. Only package gc removes the finalizer, because a node cannot see what
//     other nodes cover.
//
// All claims and releases that wait for a network become one write (package groupcommit) with
// the resourceVersion of the object that was read. There is no lease, no leader and no lock
// object. Each attempt goes through the same stages: read the object; observe, which updates
// the local state from the object; makePlan, a pure function; prepare, the effects that must
// come before the write; write; apply, the effects that may come only after it. After a
// conflict, and after a response that leaves open whether the write was applied, the next
// attempt begins with the read. The node's own entry shows what was applied.
//
// The warm pool of a network has pre-allocated addresses. A claim takes from it without a lock
// and without an API request. The warm target follows the demand. It is zero if few addresses
// are free, after a reclaim request of another node, after an idle time, and at an orderly
// shutdown (ReleaseWarmPool). An address is withdrawn from the warm pool before the write that
// frees it is sent. A released address stays in the node's entry for a cooldown before it
// enters the warm pool again.
//
// An object that is older than what the node has seen was restored from a backup. The node
// reports the rollback in its entry, which stops all claims, and sets the bits of all its
// addresses with the same write. Package gc starts a recovery, and ends it when every node has reported
// what it has in use.
package allocator
