// SPDX-License-Identifier: Apache-2.0

// Package aggregate computes the status of an object at the hub from the reports of clusters.
//
// TranslateStatus returns the exact status of one cluster, with observedGeneration translated to the
// hub's generations. SumStatuses returns a summary of several clusters by kind: it adds counts and
// computes conditions from the sums, so that kubectl's wait and rollout status work at the hub as in a
// cluster. For kinds that the package does not know, it keeps the fields on which all clusters agree,
// and merges conditions.
//
// The API server accepts each status: a Job's counters and terminal conditions, and collision counts,
// never decrease, whichever cluster reports.
//
// The package is pure: no I/O, no clock, no log. The same input gives the same output, so that a settled
// status is not written again.
package aggregate
