// SPDX-License-Identifier: Apache-2.0

// Command claims measures how fast many nodes claim addresses of one network from a real API server:
// with Patchbay's group commit, and with one address per write, like most allocators that store their
// state in an object.
//
// Each client is a node with a connection of its own. All contenders use the same store, and differ only
// in their writes.
package main
