// SPDX-License-Identifier: Apache-2.0

// Package kube is what our programs share towards the API server: the kinds and their names, the
// parsed form of a network object (ParsedNetwork), the conditions of networks, and the store for
// address claims (Store).
//
// It has no state and no caches, and starts nothing.
package kube
