// SPDX-License-Identifier: Apache-2.0

// Package macvlan attaches Pods through MACVLAN slaves, which have a MAC each.
package macvlan

import (
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
)

// New returns the backend of NetworkType macvlan, in mode bridge.
func New(k slave.Kernel, s slave.SourceGuard) *slave.Backend {
	return slave.New(k, s, kernel.MACVLAN, "bridge")
}
