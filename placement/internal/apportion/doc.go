// SPDX-License-Identifier: Apache-2.0

// Package apportion splits a number of replicas between clusters, as Webster
// (Sainte-Laguë) divides seats between parties, within bounds.
//
// Each replica goes, one after the other, to the cluster with the highest
// weight ÷ (2 × replicas + 1) that has room. Minima are filled first, by the same rule.
// Quotients are compared as products of integers, ties go to the larger weight and then
// to the lesser name, so the answer is the same everywhere, whatever the order of rows.
//
// Two properties follow, and peers that divide by largest remainder lack both:
//
//   - more replicas never take one from a cluster (the method is house-monotone);
//   - room that appears or goes away in one cluster takes none from another, as a
//     division starts from what each has now (Row.Current).
//
// What a cluster has now is therefore kept wherever its bounds allow that. To divide
// anew, because weights have changed, leave Current out.
//
// The package has no I/O, no clock and no log.
package apportion
