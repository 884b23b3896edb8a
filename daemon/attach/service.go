// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// undoTimeout bounds a roll-back: the caller's context may have ended, and a
// delegate may hang.
const undoTimeout = 30 * time.Second

// Config is what a Service works with. All fields but Backends are required.
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

// New returns a Service. Resume comes before its first request.
func New(c Config) *Service { return &Service{Config: c} }

// Add gives a sandbox the interfaces that its Pod asks for and returns the
// merged CNI result in version 1.1.0, the addresses of Request.IfName first.
// A repeated request gets the same result. On error nothing is left behind: no
// interface, address or record; should undoing fail too, the record stays for
// DEL. Errors answer to ErrInvalidRequest, ErrNotFound, ErrTryAgain or
// ErrDeleted where these fit, and the Pod gets an Event that says why.
func (s *Service) Add(ctx context.Context, req Request) (*types100.Result, error) {
	return nil, ErrTryAgain
}

// Del takes the sandbox's interfaces away, from the journal alone. It ends an
// ADD of the same sandbox that is under way. A sandbox that is not known is no
// error. Addresses and DanmEps are given back in the background.
func (s *Service) Del(ctx context.Context, req Request) error {
	return ErrTryAgain
}

// Resume takes up the journal's records when the daemon starts, before the
// first request and without the API server: what a reboot or a vanished
// namespace left is cleaned up, what was not published or given back is handed
// to the Publisher. An ADD that the daemon's end cut off is left to the
// runtime, which asks again or sends DEL. The error names the records that
// could not be taken up; the others were.
func (s *Service) Resume(ctx context.Context) error {
	return nil
}
