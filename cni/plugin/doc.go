// SPDX-License-Identifier: Apache-2.0

// Package plugin is the CNI plugin: it checks what the container runtime gave,
// hands one request to the node daemon, and prints the answer. It holds no
// credentials and does no work of its own, but for what must hold while the
// daemon is away: ADD waits a little, DEL is recorded on disk, and STATUS
// trusts the daemon's heartbeat.
package plugin
