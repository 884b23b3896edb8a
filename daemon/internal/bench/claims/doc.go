// SPDX-License-Identifier: Apache-2.0

// Command claims measures how fast many nodes get addresses of one network from a real
// API server: with Patchbay's group commit, and beside it with one address per write,
// as most allocators that keep their state in an object do it.
//
// Every client is a node with a connection of its own. All contenders use the same
// store, so they differ in nothing but how they write.
package main
