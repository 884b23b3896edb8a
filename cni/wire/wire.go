// SPDX-License-Identifier: Apache-2.0

// Package wire is what the CNI plugin and the node daemon say to each other
// over the daemon's unix socket: one request and one answer per connection,
// each a JSON document behind its length (4 bytes, big endian). It is a leaf.
package wire

import (
	"encoding/json"
	"path/filepath"
)

// MaxFrame is the largest request or answer in bytes.
const MaxFrame = 1 << 20

// Request is one invocation of the plugin (CNI 1.1, section 2).
type Request struct {
	// Command is ADD, DEL, CHECK, GC or STATUS.
	Command string `json:"command"`
	// ContainerID is CNI_CONTAINERID: the sandbox.
	ContainerID string `json:"containerID,omitempty"`
	// Netns is CNI_NETNS: the path of the Pod's network namespace; may be
	// empty on DEL.
	Netns string `json:"netns,omitempty"`
	// IfName is CNI_IFNAME.
	IfName string `json:"ifName,omitempty"`
	// Args is CNI_ARGS as it was given.
	Args string `json:"args,omitempty"`
	// Path is CNI_PATH: where other plugins are, colon-separated.
	Path string `json:"path,omitempty"`
	// Config is the network configuration from standard input.
	Config json.RawMessage `json:"config"`
}

// Response is the daemon's answer: a result, an error, or neither.
type Response struct {
	// Result is what ADD prints, in the version of the request's config.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is set when the request failed.
	Error *Error `json:"error,omitempty"`
}

// Where plugin and daemon meet on the host unless a configuration says
// otherwise.
const (
	// DefaultSocket is the daemon's unix socket.
	DefaultSocket = "/run/patchbay/patchbay.sock"
	// DefaultPendingDir holds the DELs that the plugin took while the daemon was
	// away; they survive a reboot.
	DefaultPendingDir = "/var/lib/patchbay/pending"
)

// HeartbeatPath is the heartbeat file of the daemon behind a socket: it stands
// beside it, on a file system that a reboot empties.
func HeartbeatPath(socket string) string { return filepath.Join(filepath.Dir(socket), "alive") }
