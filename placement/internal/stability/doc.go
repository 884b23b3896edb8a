// SPDX-License-Identifier: Apache-2.0

// Package stability computes what the reports of a cluster have said for long enough to rely on it. It is
// pure: the hub gives it each report with the time at which it was received.
package stability
