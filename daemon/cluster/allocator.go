// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// claimPatience is how long a Claim waits for Open: a daemon that was restarted
// needs a second or two, while kubelet comes back after a refusal much later.
const claimPatience = 10 * time.Second

// Addresses is the node's allocator for attaching and publishing. It answers
// "try again later" until Open, because an allocator needs the Node's UID, which
// only the API server knows, while DELs must be served from the start.
type Addresses struct {
	// opened is closed by Open or Refuse.
	opened chan struct{}
	// allocator is nil before Open: what every claim asks takes no lock.
	allocator atomic.Pointer[claims.Allocator]

	mu sync.Mutex
	// why there is no allocator.
	why error
	// early is what was said before Open, of claims of a former life.
	early []func(*claims.Allocator)
}

// NewAddresses returns Addresses without an allocator.
func NewAddresses() *Addresses {
	return &Addresses{opened: make(chan struct{}), why: errors.New("the API server has not answered since the daemon started")}
}

// Open hands the allocator over, once it has resumed.
func (a *Addresses) Open(allocator *claims.Allocator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allocator.Store(allocator)
	for _, say := range a.early {
		say(allocator)
	}
	a.early = nil
	close(a.opened)
}

// Refuse says instead of Open that there will be no allocator, and why: all that
// needs one is to be tried again after somebody has mended that.
func (a *Addresses) Refuse(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why, a.early = why, nil
	close(a.opened)
}

// Err is nil after Open; else it is ErrTryAgain with what is in the way.
func (a *Addresses) Err() error {
	_, err := a.open()
	return err
}

// Stats are the allocator's; all are zero before Open.
func (a *Addresses) Stats() claims.Stats {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator.Stats()
	}
	return claims.Stats{}
}

// Close ends the allocator's work. What was not written is in the journal.
func (a *Addresses) Close() {
	if allocator := a.allocator.Load(); allocator != nil {
		allocator.Close()
	}
}

// GiveBack frees what is kept ready, for the daemon's end. Claims must have ended.
func (a *Addresses) GiveBack(ctx context.Context) error {
	allocator := a.allocator.Load()
	if allocator == nil {
		return nil
	}
	return claimError(allocator.GiveBack(ctx))
}

// Claim implements attach.Addresses. It waits a while for Open.
func (a *Addresses) Claim(ctx context.Context, net *network.Network, v4, v6 attach.Want) (a4, a6 netip.Addr, err error) {
	allocator, err := a.awaited(ctx)
	if err != nil {
		return a4, a6, err
	}
	a4, a6, err = allocator.Claim(ctx, net, claims.Want(v4), claims.Want(v6))
	return a4, a6, claimError(err)
}

// awaited is open, with patience.
func (a *Addresses) awaited(ctx context.Context) (*claims.Allocator, error) {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	select {
	case <-a.opened:
	case <-ctx.Done():
	}
	return a.open()
}

func (a *Addresses) open() (*claims.Allocator, error) {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return nil, fmt.Errorf("addresses of this node: %w: %w", attach.ErrTryAgain, a.why)
}

// Discard implements attach.Addresses.
func (a *Addresses) Discard(net *network.Network, a4, a6 netip.Addr) {
	a.tell(func(allocator *claims.Allocator) { allocator.Discard(net, a4, a6) })
}

// Quarantine implements attach.Addresses. Claim has waited for Open.
func (a *Addresses) Quarantine(net *network.Network, addr netip.Addr) bool {
	allocator, err := a.open()
	return err == nil && allocator.Quarantine(net, addr)
}

// Published implements Coverage.
func (a *Addresses) Published(key claims.Key, owner string, a4, a6 netip.Addr) {
	a.tell(func(allocator *claims.Allocator) { allocator.Published(key, owner, a4, a6) })
}

// Missing implements Recovery.
func (a *Addresses) Missing(key claims.Key, owner string, a4, a6 netip.Addr) {
	a.tell(func(allocator *claims.Allocator) { allocator.Missing(key, owner, a4, a6) })
}

// Look implements Moves. Before Open there is nobody who would look.
func (a *Addresses) Look(key claims.Key, resourceVersion string) {
	if allocator, err := a.open(); err == nil {
		allocator.Look(key, resourceVersion)
	}
}

// Gone implements Moves.
func (a *Addresses) Gone(key claims.Key) {
	if allocator, err := a.open(); err == nil {
		allocator.Gone(key)
	}
}

// Reassert implements Moves.
func (a *Addresses) Reassert(key claims.Key) {
	a.tell(func(allocator *claims.Allocator) { allocator.Reassert(key) })
}

// tell keeps what is said before Open: the records that the allocator resumes from
// may have been read before they changed.
func (a *Addresses) tell(say func(*claims.Allocator)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allocator := a.allocator.Load(); allocator != nil {
		say(allocator)
		return
	}
	a.early = append(a.early, say)
}

// Return implements Coverage.
func (a *Addresses) Return(ctx context.Context, key claims.Key, owner string, a4, a6 netip.Addr) error {
	allocator, err := a.open()
	if err != nil {
		return err
	}
	return claimError(allocator.Return(ctx, key, owner, a4, a6))
}

// Free implements Coverage.
func (a *Addresses) Free(ctx context.Context, key claims.Key, owner string, a4, a6 netip.Addr) error {
	allocator, err := a.open()
	if err != nil {
		return err
	}
	return claimError(allocator.Free(ctx, key, owner, a4, a6))
}

// Forget implements Coverage.
func (a *Addresses) Forget(key claims.Key, owner string, a4, a6 netip.Addr) {
	if allocator, err := a.open(); err == nil {
		allocator.Forget(key, owner, a4, a6)
	}
}

// Collect implements Reclaimer.
func (a *Addresses) Collect(ctx context.Context, key claims.Key) (int64, error) {
	allocator, err := a.open()
	if err != nil {
		return 0, err
	}
	freed, err := allocator.Collect(ctx, key)
	return freed, claimError(err)
}

// Settle compares the node's entries in these networks with what runs here, and
// frees the rest.
func (a *Addresses) Settle(ctx context.Context, keys ...claims.Key) error {
	allocator, err := a.open()
	if err != nil {
		return err
	}
	return claimError(allocator.Settle(ctx, keys...))
}

// claimError gives an allocator's error the meaning that attach's ports know,
// and keeps its own.
func claimError(err error) error {
	switch {
	case errors.Is(err, claims.ErrTryAgain), errors.Is(err, claims.ErrUnknownState), errors.Is(err, claims.ErrClosed):
		return meaning{err, attach.ErrTryAgain}
	case errors.Is(err, claims.ErrNotFound):
		return meaning{err, attach.ErrNotFound}
	}
	return err
}

// meaning is an error that answers to one more sentinel. Its text stays as it is: it
// says the same already.
type meaning struct {
	error
	also error
}

// Is reports whether target is the further sentinel.
func (m meaning) Is(target error) bool { return target == m.also }

// Unwrap returns the error as it came.
func (m meaning) Unwrap() error { return m.error }

// Uses is what the journal says of addresses, for an allocator that resumes.
func Uses(records []*attach.Record) []claims.Use {
	var uses []claims.Use
	for _, rec := range records {
		for i := range rec.Interfaces {
			ifc := &rec.Interfaces[i]
			uses = append(uses, claims.Use{
				Key: claims.KeyOf(&ifc.Network), Owner: ifc.EndpointName,
				V4: ifc.V4.Addr(), V6: ifc.V6.Addr(),
				Static4: ifc.StaticV4, Static6: ifc.StaticV6,
				Phase: phase(rec.State, ifc.EndpointUID),
			})
		}
	}
	return uses
}

// phase is how far an interface of a record has come.
func phase(state attach.State, endpointUID string) claims.Phase {
	switch {
	case state == attach.Released:
		return claims.Releasing
	case endpointUID != "":
		return claims.Published
	}
	return claims.Claimed
}

var (
	_ attach.Addresses = (*Addresses)(nil)
	_ Coverage         = (*Addresses)(nil)
	_ Recovery         = (*Addresses)(nil)
	_ Moves            = (*Addresses)(nil)
	_ Reclaimer        = (*Addresses)(nil)
	_ Settler          = (*Addresses)(nil)
)
