// SPDX-License-Identifier: Apache-2.0

// Package apportion divides a number of replicas between clusters with the Webster (Sainte-Laguë) method,
// within bounds.
//
// Each replica goes to the cluster with room that has the highest quotient weight ÷ (2 × replicas + 1).
// Minimums are filled first, by the same rule. Quotients are compared as products of integers. With equal
// quotients the greater weight wins, then the lesser name, so that the result does not depend on the order
// of the clusters.
//
// The method has two properties that a division by largest remainder lacks:
//
//   - More replicas never take one from a cluster (house monotonicity).
//   - A change of the room in one cluster takes no replica from another, because the division starts with
//     what each cluster has now (Cluster.Current).
//
// Therefore each cluster keeps its replicas as far as its bounds allow. To divide all replicas again after
// a change of weights, leave Current unset.
//
// The package is pure: no I/O, no clock, no log.
package apportion
