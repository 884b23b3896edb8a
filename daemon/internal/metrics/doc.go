// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics of the node daemon, all with the prefix patchbay_. It wraps the
// interfaces that it measures, so that their implementations do not import it.
package metrics
