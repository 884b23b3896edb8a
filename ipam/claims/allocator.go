// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"net/netip"

	"github.com/patchbay-cni/patchbay/network"
)

// Allocator claims and releases the addresses of one node. Its methods may be
// called from any goroutine.
type Allocator struct {
	store Store
	cfg   Config
}

// New returns an Allocator for one node. No two may be at work for one node at
// a time: the node daemon's lock on its journal sees to that.
func New(store Store, cfg Config) *Allocator {
	return &Allocator{store: store, cfg: cfg.withDefaults()}
}

// Resume takes over what the journal knows of a former life. It is called once,
// before everything else, and makes no request.
func (a *Allocator) Resume([]Use) {}

// Settle compares the node's entries in these networks with what Resume was
// told and with the node's own DanmEps, frees the rest, and fences writes of a
// former life that are still on their way. Networks that are gone are no error.
func (a *Allocator) Settle(context.Context, ...Key) error { return ErrUnknownState }

// Claim covers one address per wanted family with the node's entry, all or
// none, in one write; when no family is wanted it puts the entry there. When
// ctx ends first, what was claimed is given back.
func (a *Allocator) Claim(context.Context, *network.Network, Want, Want) (a4, a6 netip.Addr, err error) {
	return a4, a6, ErrUnknownState
}

// Discard gives back what Claim gave and nobody has used. It does not wait for
// the API server: what cannot be written now is retried.
func (a *Allocator) Discard(*network.Network, netip.Addr, netip.Addr) {}

// Published says that the DanmEp of a claim exists. It is called once per
// claim, and returns at once.
func (a *Allocator) Published(Key, netip.Addr, netip.Addr) {}

// Return puts the addresses of a published attachment back into the node's
// entry; after it, the DanmEp may go. A second Return, and one of addresses
// that are not this node's, or of a network that is gone, is a no-op.
func (a *Allocator) Return(context.Context, Key, netip.Addr, netip.Addr) error {
	return ErrUnknownState
}

// Free clears bit and entry of returned addresses in one write, after their
// DanmEp is gone. A second Free is a no-op.
func (a *Allocator) Free(context.Context, Key, netip.Addr, netip.Addr) error {
	return ErrUnknownState
}

// Collect frees the bits that neither an entry nor a DanmEp covers, and returns
// how many. On a network in deletion that nobody holds and no DanmEp names, it
// takes the finalizer off.
func (a *Allocator) Collect(context.Context, Key) (int, error) { return 0, ErrUnknownState }

// Close stops all work and waits for its end. Claims in wait get ErrClosed.
func (a *Allocator) Close() {}
