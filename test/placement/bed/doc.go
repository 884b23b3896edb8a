// SPDX-License-Identifier: Apache-2.0

// Package bed runs what placement is tested on: a hub and workload clusters, all on
// this machine's loopback, as ordinary processes that end with their starter.
//
// The hub is an API server whose controller manager runs no workload controllers. Each
// cluster has an API server, the real controller manager and the real scheduler; KWOK
// plays its nodes and Pods, which turn ready when an annotation says (ReadyAfter). The
// clusters share one etcd, each under its own prefix; the hub has an etcd of its own,
// so that it can be set back to an older state while the clusters go on.
//
// Every agent reaches the hub through a Link, which a test can cut or freeze. Every
// API server keeps an audit log of writes, which Writes reads.
package bed
