// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands of README.md and of the pages in docs/ in a lab, as a reader would, and
// compares what they print with what the page says they print. `make test-docs` does that; the unit tests
// check that each block of a page is run, or is excused with a reason. The blocks of docs/placement.md need a
// hub and clusters, so the tests in test/placement run them.
//
// Each command is run by `bash -c`. The language of github.com/rogpeppe/go-internal/testscript has no pipes,
// double quotes, substitutions, here-documents or wildcards, and the pages have all of them.
package docs
