// SPDX-License-Identifier: Apache-2.0

// Package kubeclient connects the node daemon with the API server: a client, informer
// caches that cover this node, and work queues with back-off.
//
// The caches hold metadata where they can. Each address claim writes a network's status,
// and a watch of whole networks would send each of these writes to all nodes. A read that
// decides which node owns an address is never answered from a cache (kube.Store).
//
// The daemon starts and keeps running while the API server is unreachable. Connect sends no
// request, and each background worker retries with back-off per object.
package kubeclient
