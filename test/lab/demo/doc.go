// SPDX-License-Identifier: Apache-2.0

// Package demo shows in a lab what Patchbay does: it applies examples/demo, prints
// each Pod's interfaces and pings between the nodes on every network.
package demo
