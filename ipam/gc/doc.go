// SPDX-License-Identifier: Apache-2.0

// Package gc is the garbage collector of addresses, run by the controller: it frees the bits
// that nothing covers, sets those that are covered and clear, reports addresses with two
// owners, frees what nodes cover that are gone, takes the finalizer off networks in deletion,
// and starts and ends the recovery of networks whose state was rolled back.
//
// Each change reads the network with quorum, then lists its DanmEps, then writes with the
// resourceVersion of that read: whoever covers an address since then has changed the object.
package gc
