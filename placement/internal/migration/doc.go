// SPDX-License-Identifier: Apache-2.0

// Package migration takes one object from the clusters that have it to those that are to
// have it, a step at a time. One state machine serves assignment, moves, drains, new
// divisions, scaling and removal: they differ in what is wanted only.
//
// Step looks at what is wanted, asked and reported, and says what to ask next. It never
// remembers anything: the caller stores its output and hands it in again. Whatever
// write is lost, or whenever the caller is killed, the next step follows from
// what is stored.
//
// Make before break:
//
//   - grow first, by no more than the surge leaves;
//   - shrink only what stays covered: after each step the sum over clusters of the
//     lesser of what is available and what is asked is at least desired − unavailable.
//     Since a report is older than what it tells of, Pods that became available
//     meanwhile make that sum greater, never smaller;
//   - a cluster that is not wanted gets the order to remove when it has had no
//     replicas for the time settle; without replicas, when every other is ready.
//
// Break before make gives the order first, and starts nothing before it is carried out.
//
// A cluster that is wanted again while its order is not carried out gets it taken back. What
// is not in the inventory gets no order at all, unless nothing is wanted anywhere.
//
// What cannot be reached is not lost: it counts as asked, not as available, and is
// not shrunk as it would do so at an hour that nobody chose.
//
// The package is pure: no I/O, no clock, no log.
package migration
