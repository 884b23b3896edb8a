// SPDX-License-Identifier: Apache-2.0

// Package rules shows that the rules of address management are tested: each one
// is switched off in the source, and a test has to fail.
//
// A row of the tables names a rule, the place in the source that keeps it, what
// stands there without the rule, and the test that notices. The changed file is
// compiled by way of an overlay, so nothing in the tree is touched. Without the
// build tag "rules" nothing here is compiled: `make test-rules` runs it.
package rules
