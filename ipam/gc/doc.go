// SPDX-License-Identifier: Apache-2.0

// Package gc is the garbage collector of addresses, which the controller runs. It clears the bits
// of uncovered addresses and sets those of covered ones, reports addresses with two owners, frees
// the addresses of deleted nodes, removes the finalizer from networks in deletion, and starts and
// ends the recovery of networks whose state was rolled back.
//
// Each change reads the network with quorum, then lists its DanmEps, then writes with the
// resourceVersion of that read. If a node has covered an address since then, it has changed the
// object, and the write has a conflict.
package gc
