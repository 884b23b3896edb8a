// SPDX-License-Identifier: Apache-2.0

// Package networks says on each network with a host device on which nodes its link
// is up: it rolls the nodes' NodeNetworks up into the network's condition Ready.
//
// What nodes say changes often and all at once: a thousand networks are applied, a
// node boots, a NIC loses its carrier for a second. So a condition that got worse is
// written only after it has lasted, one network is written seldom, and the message of
// a network that is ready everywhere names no number of nodes, which would change
// with each node that joins.
package networks
