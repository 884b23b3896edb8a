// SPDX-License-Identifier: Apache-2.0

// Package policy resolves the effective policy of one object and plans its placement: the clusters that
// the object may use, and the replicas of each, within the clusters' limits.
//
// The annotation on the object comes before a Placement of its namespace, and that before a
// ClusterPlacement. Two policies of the same rank that select one object are an error. The annotation
// replaces the clusters and the weights of a policy; the rest of the policy stays in force.
//
// A replica stays where it is as long as the effective policy stays the same (its Digest). When
// clusters, limits or the number of replicas change, the plan changes as little as possible.
//
// The package is pure: no I/O, no clock, no log.
package policy
