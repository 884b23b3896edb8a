// SPDX-License-Identifier: Apache-2.0

package attach

import "time"

// undoTimeout bounds a roll-back: the caller's context may have ended, and a
// delegate may hang.
const undoTimeout = 30 * time.Second

// Config is what a Service works with. All fields but Backends and Delegate are
// required; a network whose type has no backend is refused.
type Config struct {
	// BootID is the kernel's boot_id: records of another one have no namespace.
	BootID string
	// Cluster, Addresses, Journal, HostLinks, Namespaces and Publisher are the
	// rim; see the ports.
	Cluster    Cluster
	Addresses  Addresses
	Journal    Journal
	HostLinks  HostLinks
	Namespaces Namespaces
	Publisher  Publisher
	// Prober is asked for networks with ConflictProbe only.
	Prober Prober
	// Backends are our own, by network type (ipvlan, macvlan).
	Backends map[string]Backend
	// Delegate serves every network type that names another CNI plugin.
	Delegate Backend
}

// Service attaches Pods to networks and detaches them. Its methods may be
// called from any goroutine.
type Service struct {
	Config
	sandboxes sandboxes
}

// New returns a Service. Resume is to be called once, at its start.
func New(c Config) *Service { return &Service{Config: c} }
