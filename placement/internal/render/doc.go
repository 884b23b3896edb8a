// SPDX-License-Identifier: Apache-2.0

// Package render makes the manifest that a cluster applies from an object at the hub.
//
// The steps are independent, and the caller decides their order: Prune removes the fields that clusters own
// or that are for the hub only, Rules apply Customizations, SetReplicas sets a cluster's share of the
// replicas, and MarshalManifest encodes the result. Dependencies and IsCompanionOf find the other objects
// that a cluster needs for an object.
//
// The package is pure: no I/O, no clock, no log. The same input gives the same bytes. The cost of users'
// expressions and the size of their results are limited.
package render
