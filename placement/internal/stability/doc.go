// SPDX-License-Identifier: Apache-2.0

// Package stability computes what the reports of a cluster have said for long enough to rely on it. One
// report that says "available" may be wrong a second later: a Pod that starts, serves and crashes is available
// for a moment.
//
// A History has the reports about one object in one cluster, each with the time at which the hub received it.
// A report is in force until the next one: a cluster reports changes, and a heartbeat confirms that there are
// no others. The time up to which this is known is the end of a window; its length is how long a report must
// last. A Sample says what all reports in force in the window have in common, and those after it, which can
// only lower the trust.
//
// The package is pure: no I/O, no clock, no log.
package stability
