// SPDX-License-Identifier: Apache-2.0

// Package plugin is the CNI plugin: it validates the container runtime's input, sends one request
// to the node daemon, and prints the answer. It has no credentials. While the daemon is
// unavailable, ADD waits for it, DEL is recorded on disk, and STATUS uses the daemon's
// heartbeat.
package plugin
