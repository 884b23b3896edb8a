// SPDX-License-Identifier: Apache-2.0

// Package metrics has the hub's own metrics. They count what the hub's cache has, event by event, so
// that neither a scrape nor a change lists objects. Only the leader has values. No label is the name of
// an object besides Clusters.
package metrics
