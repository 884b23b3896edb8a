// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between the CNI plugin and the node daemon on the daemon's unix
// socket: one request and one answer per connection. Each is a frame: the length (4 bytes, big
// endian) and a JSON document.
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
	// Netns is CNI_NETNS: the path of the Pod's network namespace. It may be empty on DEL.
	Netns string `json:"netns,omitempty"`
	// IfName is CNI_IFNAME.
	IfName string `json:"ifName,omitempty"`
	// Args is CNI_ARGS.
	Args string `json:"args,omitempty"`
	// Path is CNI_PATH: the directories of other plugins, separated by colons.
	Path string `json:"path,omitempty"`
	// Config is the network configuration from standard input.
	Config json.RawMessage `json:"config"`
}

// Response is the daemon's answer: a result, an error, or neither.
type Response struct {
	// Result is the result of ADD, in the version of the request's configuration.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is set when the request failed.
	Error *Error `json:"error,omitempty"`
}

// Default paths on the host.
const (
	// DefaultSocket is the daemon's unix socket.
	DefaultSocket = "/run/patchbay/patchbay.sock"
	// DefaultPendingDir is the directory for DELs that the plugin accepted while the daemon was
	// unavailable. It survives a reboot.
	DefaultPendingDir = "/var/lib/patchbay/pending"
)

// HeartbeatPath returns the path of the heartbeat of the daemon with the socket: it is in the same
// directory, on a file system that a reboot empties.
func HeartbeatPath(socket string) string { return filepath.Join(filepath.Dir(socket), "alive") }
