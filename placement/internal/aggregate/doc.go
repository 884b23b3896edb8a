// SPDX-License-Identifier: Apache-2.0

// Package aggregate makes the status of an object at the hub from what clusters report
// of it.
//
// Of one cluster the hub has the exact status, with observedGeneration translated to
// the hub's generations (Exact). Of several it has a sum by kind (Sum): counts are
// added, conditions are computed from the sums, so that kubectl's wait and rollout
// status mean at the hub what they mean in a cluster. For kinds that nobody here knows,
// what all clusters agree on is kept, and conditions are brought together.
//
// What the API server refuses is never asked of it: a Job's counters and terminal
// conditions, and collision counts, do not go back, whichever cluster reports.
//
// The package has no I/O, no clock and no log: the time is given. The same input has the
// same output, so what has settled is not written again.
package aggregate
