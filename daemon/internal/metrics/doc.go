// SPDX-License-Identifier: Apache-2.0

// Package metrics is what the node daemon counts and measures, all under the
// prefix patchbay_. It wraps the ports that it measures, so that they need not
// know of it.
package metrics
