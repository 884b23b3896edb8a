// SPDX-License-Identifier: Apache-2.0

// Package cluster is the node daemon's rim towards the API server: informer
// caches, DanmEps, Events, finalizers and NodeNetworks.
//
// Caches hold metadata only, because status is written for each address claim
// and must not travel to every node: an object is read in full when its UID or
// generation differs from the model at hand (Networks). A read that decides
// who owns an address is never from a cache (objects.Store).
//
// Everything works, or waits and retries, while the API server is away: no
// constructor talks to it, and each background worker backs off per object.
package cluster
