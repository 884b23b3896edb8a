// SPDX-License-Identifier: Apache-2.0

// Package addresses is what the leading controller does for the addresses of all
// networks, where no single node can:
//
//   - It audits bitmaps in both directions: it frees bits that nobody covers, sets those
//     of addresses in use that are clear, and counts both as drift.
//   - It reports addresses with two owners: a condition on the network, an Event on each
//     Pod, a metric.
//   - It gives back what Nodes held that are gone, and their DanmEps.
//   - It ends the recovery of a network whose object went back in time, and names
//     the nodes that are awaited.
//   - It removes DanmEps that name a Pod of another node, and reports them.
//   - It takes the finalizer off a network in deletion that nobody uses any more.
//   - It obeys two annotations: rebuild the bitmap, skip a node in a recovery.
//   - It says on each network how full its pools are.
//
// Every 45 seconds it lists all networks from the API server's watch cache (sweep)
// and queues those with work to do; a network whose metadata moves is looked at a second
// later, and not more often than every 5 seconds. Caches give hints only: what frees an address is a Steward's quorum
// read, consistent list and guarded write.
package addresses
