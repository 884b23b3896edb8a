// SPDX-License-Identifier: Apache-2.0

// Package placement tests placement as a whole: hub, agents and real clusters, one
// test for each row of the table in the contract (issue 7), by the row's name. While
// each runs, a watcher holds us to the invariants I1 to I9 (watcher_test.go).
//
// Tests that restart programs or change what all clusters share run first, one after the
// other; the rest shares the bed, each in a namespace of its own. -programs is a folder of
// programs to take in place of bin: built with -race, say. A report of a race or a panic
// in any log fails the run. -settled=60s waits as long as I5 says, at the end of each test.
package placement
