// SPDX-License-Identifier: Apache-2.0

package wire

import "path/filepath"

// Where plugin and daemon meet on the host unless a configuration says
// otherwise.
const (
	// DefaultSocket is the daemon's unix socket.
	DefaultSocket = "/run/patchbay/patchbay.sock"
	// DefaultPending holds the DELs that the plugin took while the daemon was
	// away; they survive a reboot.
	DefaultPending = "/var/lib/patchbay/pending"
)

// AlivePath is the heartbeat file of the daemon behind a socket: it stands
// beside it, on a file system that a reboot empties.
func AlivePath(socket string) string { return filepath.Join(filepath.Dir(socket), "alive") }
