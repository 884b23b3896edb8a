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

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// claimOpenTimeout is how long a Claim waits for Open: a daemon that was restarted
// needs a second or two, while kubelet comes back after a refusal much later.
const claimOpenTimeout = 10 * time.Second

// DeferredAllocator is the node's allocator for attaching and publishing. It answers
// "try again later" until Open, because an allocator needs the Node's UID, which
// only the API server knows, while DELs must be served from the start.
type DeferredAllocator struct {
	// decided is closed by Open or Refuse.
	decided chan struct{}
	// allocator is nil before Open: what every claim asks takes no lock.
	allocator atomic.Pointer[claims.Allocator]

	mu sync.Mutex
	// unavailable there is no allocator.
	unavailable error
	// queued is what was said before Open, of claims of a former life.
	queued []func(*claims.Allocator)
}

// NewDeferredAllocator returns Addresses without an allocator.
func NewDeferredAllocator() *DeferredAllocator {
	return &DeferredAllocator{decided: make(chan struct{}), unavailable: errors.New("the API server has not answered since the daemon started")}
}

// Open hands the allocator over, once it has resumed.
func (a *DeferredAllocator) Open(allocator *claims.Allocator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allocator.Store(allocator)
	for _, say := range a.queued {
		say(allocator)
	}
	a.queued = nil
	close(a.decided)
}

// Fail says instead of Open that there will be no allocator, and why: all that
// needs one is to be tried again after somebody has mended that.
func (a *DeferredAllocator) Fail(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unavailable, a.queued = why, nil
	close(a.decided)
}

// Err is nil after Open; else it is ErrTryAgain with what is in the way.
func (a *DeferredAllocator) Err() error {
	_, err := a.allocatorOrErr()
	return err
}

// Stats are the allocator's; all are zero before Open.
func (a *DeferredAllocator) Stats() claims.Stats {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator.Stats()
	}
	return claims.Stats{}
}

// Close ends the allocator's work. What was not written is in the journal.
func (a *DeferredAllocator) Close() {
	if allocator := a.allocator.Load(); allocator != nil {
		allocator.Close()
	}
}

// ReleaseWarmPool frees what is kept ready, for the daemon's end. Claims must have ended.
func (a *DeferredAllocator) ReleaseWarmPool(ctx context.Context) error {
	allocator := a.allocator.Load()
	if allocator == nil {
		return nil
	}
	return allocatorError(allocator.GiveBack(ctx))
}

// Claim implements attach.Addresses. It waits a while for Open.
func (a *DeferredAllocator) Claim(ctx context.Context, net *network.Network, v4, v6 attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	allocator, err := a.awaitAllocator(ctx)
	if err != nil {
		return a4, a6, err
	}
	a4, a6, err = allocator.Claim(ctx, net, claims.Want(v4), claims.Want(v6))
	return a4, a6, allocatorError(err)
}

// awaitAllocator is open, with patience.
func (a *DeferredAllocator) awaitAllocator(ctx context.Context) (*claims.Allocator, error) {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimOpenTimeout)
	defer cancel()
	select {
	case <-a.decided:
	case <-ctx.Done():
	}
	return a.allocatorOrErr()
}

func (a *DeferredAllocator) allocatorOrErr() (*claims.Allocator, error) {
	if allocator := a.allocator.Load(); allocator != nil {
		return allocator, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return nil, fmt.Errorf("addresses of this node: %w: %w", attach.ErrTryAgain, a.unavailable)
}

// Discard implements attach.Addresses.
func (a *DeferredAllocator) Discard(net *network.Network, a4, a6 netip.Addr) {
	a.callOrQueue(func(allocator *claims.Allocator) { allocator.Discard(net, a4, a6) })
}

// Quarantine implements attach.Addresses. Claim has waited for Open.
func (a *DeferredAllocator) Quarantine(net *network.Network, addr netip.Addr) bool {
	allocator, err := a.allocatorOrErr()
	return err == nil && allocator.Quarantine(net, addr)
}

// Published implements Coverage.
func (a *DeferredAllocator) Published(key claims.Key, owner string, a4, a6 netip.Addr) {
	a.callOrQueue(func(allocator *claims.Allocator) { allocator.Published(key, owner, a4, a6) })
}

// Missing implements Recovery.
func (a *DeferredAllocator) Missing(key claims.Key, owner string, a4, a6 netip.Addr) {
	a.callOrQueue(func(allocator *claims.Allocator) { allocator.Missing(key, owner, a4, a6) })
}

// Look implements Moves. Before Open there is nobody who would look.
func (a *DeferredAllocator) Look(key claims.Key, resourceVersion string) {
	if allocator, err := a.allocatorOrErr(); err == nil {
		allocator.Look(key, resourceVersion)
	}
}

// Gone implements Moves.
func (a *DeferredAllocator) Gone(key claims.Key) {
	if allocator, err := a.allocatorOrErr(); err == nil {
		allocator.Gone(key)
	}
}

// Reassert implements Moves.
func (a *DeferredAllocator) Reassert(key claims.Key) {
	a.callOrQueue(func(allocator *claims.Allocator) { allocator.Reassert(key) })
}

// callOrQueue keeps what is said before Open: the records that the allocator resumes from
// may have been read before they changed.
func (a *DeferredAllocator) callOrQueue(say func(*claims.Allocator)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allocator := a.allocator.Load(); allocator != nil {
		say(allocator)
		return
	}
	a.queued = append(a.queued, say)
}

// Return implements Coverage.
func (a *DeferredAllocator) Return(ctx context.Context, key claims.Key, owner string, a4, a6 netip.Addr) error {
	allocator, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(allocator.Return(ctx, key, owner, a4, a6))
}

// Free implements Coverage.
func (a *DeferredAllocator) Free(ctx context.Context, key claims.Key, owner string, a4, a6 netip.Addr) error {
	allocator, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(allocator.Free(ctx, key, owner, a4, a6))
}

// Forget implements Coverage.
func (a *DeferredAllocator) Forget(key claims.Key, owner string, a4, a6 netip.Addr) {
	if allocator, err := a.allocatorOrErr(); err == nil {
		allocator.Forget(key, owner, a4, a6)
	}
}

// Collect implements Reclaimer.
func (a *DeferredAllocator) Collect(ctx context.Context, key claims.Key) (int64, error) {
	allocator, err := a.allocatorOrErr()
	if err != nil {
		return 0, err
	}
	freed, err := allocator.Collect(ctx, key)
	return freed, allocatorError(err)
}

// Settle compares the node's entries in these networks with what runs here, and
// frees the rest.
func (a *DeferredAllocator) Settle(ctx context.Context, keys ...claims.Key) error {
	allocator, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(allocator.Settle(ctx, keys...))
}

// allocatorError gives an allocator's error the meaning that attach's ports know,
// and keeps its own.
func allocatorError(err error) error {
	switch {
	case errors.Is(err, claims.ErrTryAgain), errors.Is(err, claims.ErrUnknownState), errors.Is(err, claims.ErrClosed):
		return sentinelError{err, attach.ErrTryAgain}
	case errors.Is(err, claims.ErrNotFound):
		return sentinelError{err, attach.ErrNotFound}
	}
	return err
}

// sentinelError is an error that answers to one more sentinel. Its text stays as it is: it
// says the same already.
type sentinelError struct {
	error
	sentinel error
}

// Is reports whether target is the further sentinel.
func (m sentinelError) Is(target error) bool { return target == m.sentinel }

// Unwrap returns the error as it came.
func (m sentinelError) Unwrap() error { return m.error }

// RecordedUses is what the journal says of addresses, for an allocator that resumes.
func RecordedUses(records []*attach.Record) []claims.Use {
	var uses []claims.Use
	for _, rec := range records {
		for i := range rec.Interfaces {
			ifc := &rec.Interfaces[i]
			uses = append(uses, claims.Use{
				Key: claims.KeyOf(&ifc.Network), Owner: ifc.EndpointName,
				V4: ifc.V4.Addr(), V6: ifc.V6.Addr(),
				Static4: ifc.StaticV4, Static6: ifc.StaticV6,
				Phase: usePhase(rec.State, ifc.EndpointUID),
			})
		}
	}
	return uses
}

// usePhase is how far an interface of a record has come.
func usePhase(state attach.State, endpointUID string) claims.Phase {
	switch {
	case state == attach.Released:
		return claims.Releasing
	case endpointUID != "":
		return claims.Published
	}
	return claims.Claimed
}

var (
	_ attach.Addresses = (*DeferredAllocator)(nil)
	_ Coverage         = (*DeferredAllocator)(nil)
	_ MissingObserver  = (*DeferredAllocator)(nil)
	_ NetworkObserver  = (*DeferredAllocator)(nil)
	_ AddressCollector = (*DeferredAllocator)(nil)
	_ AddressSettler   = (*DeferredAllocator)(nil)
)
