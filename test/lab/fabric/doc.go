// SPDX-License-Identifier: Apache-2.0

// Package fabric is the cabling of a lab: one network namespace on the machine with
//
//   - bridge mgmt, 10.89.0.1/24: the nodes' first card (ens3), the API server, and the
//     way between the nodes' Pod subnets (10.244.N.0/24);
//   - bridge trunk, without any address: the nodes' second card (ens4). It passes
//     VLAN tags and floods multicast, as a switch port in trunk mode does;
//   - bridge second, another such switch: the nodes' third card (ens5);
//   - bridge agent, 169.254.89.1/24: a fourth card, hidden in the guest, for commands.
//
// Nodes are plugged in with tap interfaces. Labs do not see each other, so all have
// the same addresses.
package fabric
