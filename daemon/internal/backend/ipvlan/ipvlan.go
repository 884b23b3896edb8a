// SPDX-License-Identifier: Apache-2.0

// Package ipvlan attaches Pods through IPVLAN slaves, which share the MAC of
// their host link: switches that allow one MAC per port are content with it.
package ipvlan

import (
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
)

// New returns the backend of NetworkType ipvlan, in mode l2.
func New(k slave.Kernel, s slave.SourceGuard) *slave.Backend {
	return slave.New(k, s, kernel.IPVLAN, "l2")
}
