// SPDX-License-Identifier: Apache-2.0

// Package addresses does for the addresses of all networks what no single node can do, in the
// leading controller:
//
//   - It audits bitmaps: it frees bits that no owner covers, sets clear bits of addresses
//     in use, and counts both as drift.
//   - It reports addresses with two owners by a condition on the network, an Event on each
//     Pod, and a metric.
//   - It frees the addresses of Nodes that are gone, and removes their DanmEps.
//   - It starts and ends the recovery of a network whose object went back in time, and names
//     the nodes that it waits for.
//   - It removes and reports DanmEps that name a Pod of another node.
//   - It removes the finalizer of an unused network in deletion.
//   - It obeys two annotations: one rebuilds the bitmap, one skips a node in a recovery.
//   - It reports in each network's status how full its pools are.
//
// The sweeper lists all networks from the API server's watch cache every 45 seconds, and queues
// those that need work. A network whose metadata changes is reconciled a second later, and at most
// every 5 seconds. Caches only show where to look: an address is freed by a quorum read, a
// consistent list and a write with that read's resourceVersion (see gc.Collector).
package addresses
