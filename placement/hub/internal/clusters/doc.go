// SPDX-License-Identifier: Apache-2.0

// Package clusters maintains the Clusters of the inventory: it gives accepted agents their
// namespace and rights, observes heartbeats, and reports conditions, assigned usage and the progress
// of drains in each Cluster's status. It never writes a Cluster's spec.
package clusters
