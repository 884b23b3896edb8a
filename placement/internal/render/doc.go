// SPDX-License-Identifier: Apache-2.0

// Package render makes from an object at the hub the manifest that a cluster applies.
//
// The steps are independent, and their order is the caller's: Prune takes away what
// clusters own and what is the hub's alone, Rules carry out Customizations, SetReplicas
// asks for a cluster's part of the replicas, Manifest writes it down. Follow and Selects
// say what else a cluster needs for it.
//
// The package has no I/O, no clock and no log. The same input makes the same bytes.
// Expressions of users run with a limit on their cost and on the size of what they make.
package render
