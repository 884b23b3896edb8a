// SPDX-License-Identifier: Apache-2.0

// Package room computes how many Pods fit into what the nodes of a cluster have free. An agent groups its nodes into
// a Histogram of few buckets, and the hub counts with it.
//
// A bucket has the smallest values of its nodes, so that a Histogram never has more room than the nodes. A Pod is one
// vector of CPU and memory: what else a scheduler heeds, such as affinity, only a refusal of the cluster tells.
package room
