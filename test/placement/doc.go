// SPDX-License-Identifier: Apache-2.0

// Package placement tests placement as a whole: hub, agents and real clusters, one
// test for each row of the table in the contract (issue 7), by the row's name. While
// each runs, a watcher holds us to the invariants I1 to I5 (watcher_test.go).
package placement
