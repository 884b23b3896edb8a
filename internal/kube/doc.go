// SPDX-License-Identifier: Apache-2.0

// Package kube is what all of our programs share towards the API server: the
// kinds and how they are named, what a network object means (Model), and the
// store through which addresses are claimed (Store).
//
// It holds no state and starts nothing. The node daemon and the controller
// stand on it, each with caches of its own.
package kube
