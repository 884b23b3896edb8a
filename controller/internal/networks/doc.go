// SPDX-License-Identifier: Apache-2.0

// Package networks maintains the condition Ready of networks with a host device or of another CNI
// plugin: it aggregates the NodeNetworks of all nodes, which report where the network's link is up and
// the plugin installed.
//
// Reports change often and all at once: a thousand networks are applied, a node boots, a NIC loses
// its carrier for a second. Therefore a condition that gets worse is written only after it has
// lasted for a while, the condition of one network is written at a bounded rate, and the message of
// a network that is ready everywhere contains no number of nodes, which would change whenever a
// node joins.
package networks
