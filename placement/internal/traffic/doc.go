// SPDX-License-Identifier: Apache-2.0

// Package traffic decides which endpoints of other clusters a Service on a stretched ClusterNetwork gets in each
// cluster. It trusts no report: an address counts if it is in the network's subnet, outside of the other clusters'
// pools, and reported by one cluster only.
package traffic
