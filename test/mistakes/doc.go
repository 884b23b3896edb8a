// SPDX-License-Identifier: Apache-2.0

// Package mistakes has typical mistakes of users in testdata, one a file, each with the exact text that
// its user reads. Its test makes each at an API server; scripts/generate writes the table of
// docs/reference/mistakes.md.
package mistakes
