// SPDX-License-Identifier: Apache-2.0

// Package policy turns what people have written into what is wanted of one object:
// which policy is for it, which clusters it may use, and how many replicas each of
// them is to have, within the clusters' limits.
//
// The order is: the annotation on the object, a Placement of its namespace, a
// ClusterPlacement. Two policies of the same rank that select one object are an error,
// not a race. The annotation replaces a policy's choice of clusters and its weights;
// the rest of the policy holds.
//
// Decisions are kept: while the wish stays the same (its Digest), a replica stays where
// it is; clusters that come or go, limits and growth change only what must.
//
// The package is pure: no I/O, no clock, no log.
package policy
