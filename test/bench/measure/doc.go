// SPDX-License-Identifier: Apache-2.0

// Package measure turns the samples of a benchmark into a table: the median and the
// spread of several runs, ours beside its peers, and the machine they ran on. A figure
// without its peer from the same run says little, so there is no other form.
package measure
