// SPDX-License-Identifier: Apache-2.0

package addresses

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
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// claimOpenTimeout is how long Claim waits for Open. A restarted daemon needs a second or two,
// while kubelet retries a failed ADD much later.
const claimOpenTimeout = 10 * time.Second

// DeferredAllocator passes calls to the node's allocator. An allocator needs the Node's UID from
// the API server, while the daemon must handle DELs from its start. Until Open, methods that
// return an error therefore return attach.ErrTryAgain, and it queues the reports that the allocator
// must not miss.
type DeferredAllocator struct {
	// decided is closed by Open or Fail.
	decided chan struct{}
	// allocator is nil before Open. It is atomic because each claim reads it.
	allocator atomic.Pointer[allocator.Allocator]

	mu sync.Mutex // guards the fields below
	// unavailable is why there is no allocator.
	unavailable error
	// queued has the calls before Open. They are about claims of an earlier incarnation of the
	// daemon.
	queued []func(*allocator.Allocator)
}

// NewDeferredAllocator returns a DeferredAllocator that waits for Open or Fail.
func NewDeferredAllocator() *DeferredAllocator {
	return &DeferredAllocator{decided: make(chan struct{}), unavailable: errors.New("the daemon has not read its Node and all networks from the API server since it started")}
}

// Open sets the allocator, which must have resumed, and sends it the queued calls. Open or Fail
// must be called at most once.
func (a *DeferredAllocator) Open(opened *allocator.Allocator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allocator.Store(opened)
	for _, call := range a.queued {
		call(opened)
	}
	a.queued = nil
	close(a.decided)
}

// Fail records that this daemon will have no allocator. Methods return attach.ErrTryAgain with the
// cause, because a daemon that starts after a repair will have one.
func (a *DeferredAllocator) Fail(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unavailable, a.queued = cause, nil
	close(a.decided)
}

// Err returns nil after Open. Otherwise it returns attach.ErrTryAgain with the cause.
func (a *DeferredAllocator) Err() error {
	_, err := a.allocatorOrErr()
	return err
}

// Stats returns the allocator's statistics. All are zero before Open.
func (a *DeferredAllocator) Stats() allocator.Stats {
	if opened := a.allocator.Load(); opened != nil {
		return opened.Stats()
	}
	return allocator.Stats{}
}

// Close stops the allocator. The next daemon resumes unwritten changes from the journal.
func (a *DeferredAllocator) Close() {
	if opened := a.allocator.Load(); opened != nil {
		opened.Close()
	}
}

// ReleaseWarmPool frees the addresses of the warm pool before the daemon exits. No Claim may run.
func (a *DeferredAllocator) ReleaseWarmPool(ctx context.Context) error {
	opened := a.allocator.Load()
	if opened == nil {
		return nil
	}
	return allocatorError(opened.ReleaseWarmPool(ctx))
}

// Claim implements attach.Addresses. It waits at most claimOpenTimeout for Open.
func (a *DeferredAllocator) Claim(ctx context.Context, net *network.Network, v4, v6 attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	opened, err := a.awaitAllocator(ctx)
	if err != nil {
		return a4, a6, err
	}
	a4, a6, err = opened.Claim(ctx, net, allocator.AddressRequest(v4), allocator.AddressRequest(v6))
	return a4, a6, allocatorError(err)
}

// awaitAllocator waits for Open or Fail, and returns the allocator.
func (a *DeferredAllocator) awaitAllocator(ctx context.Context) (*allocator.Allocator, error) {
	if opened := a.allocator.Load(); opened != nil {
		return opened, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimOpenTimeout)
	defer cancel()
	select {
	case <-a.decided:
	case <-ctx.Done():
	}
	return a.allocatorOrErr()
}

// allocatorOrErr returns the allocator, or attach.ErrTryAgain with the cause.
func (a *DeferredAllocator) allocatorOrErr() (*allocator.Allocator, error) {
	if opened := a.allocator.Load(); opened != nil {
		return opened, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return nil, fmt.Errorf("allocate addresses: %w: %w", attach.ErrTryAgain, a.unavailable)
}

// Discard implements attach.Addresses.
func (a *DeferredAllocator) Discard(net *network.Network, a4, a6 netip.Addr) {
	a.callOrQueue(func(opened *allocator.Allocator) { opened.Discard(net, a4, a6) })
}

// Quarantine implements attach.Addresses. It follows a successful Claim, so that the allocator is
// open.
func (a *DeferredAllocator) Quarantine(net *network.Network, addr netip.Addr) bool {
	opened, err := a.allocatorOrErr()
	return err == nil && opened.Quarantine(net, addr)
}

// MarkPublished implements danmep.Coverage.
func (a *DeferredAllocator) MarkPublished(key network.Key, owner string, a4, a6 netip.Addr) {
	a.callOrQueue(func(opened *allocator.Allocator) { opened.MarkPublished(key, owner, a4, a6) })
}

// DanmEpMissing implements danmep.MissingObserver.
func (a *DeferredAllocator) DanmEpMissing(key network.Key, owner string, a4, a6 netip.Addr) {
	a.callOrQueue(func(opened *allocator.Allocator) { opened.DanmEpMissing(key, owner, a4, a6) })
}

// ObserveVersion implements networkcache.Observer. The allocator needs no event from before Open.
func (a *DeferredAllocator) ObserveVersion(key network.Key, resourceVersion string) {
	if opened, err := a.allocatorOrErr(); err == nil {
		opened.ObserveVersion(key, resourceVersion)
	}
}

// NetworkDeleted implements networkcache.Observer.
func (a *DeferredAllocator) NetworkDeleted(key network.Key) {
	if opened, err := a.allocatorOrErr(); err == nil {
		opened.NetworkDeleted(key)
	}
}

// ReportToRecovery implements networkcache.Observer.
func (a *DeferredAllocator) ReportToRecovery(key network.Key) {
	a.callOrQueue(func(opened *allocator.Allocator) { opened.ReportToRecovery(key) })
}

// callOrQueue queues a call that comes before Open. The call may report a change of a record that
// the allocator was resumed from before the change.
func (a *DeferredAllocator) callOrQueue(call func(*allocator.Allocator)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if opened := a.allocator.Load(); opened != nil {
		call(opened)
		return
	}
	a.queued = append(a.queued, call)
}

// ReturnToEntry implements danmep.Coverage.
func (a *DeferredAllocator) ReturnToEntry(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	opened, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(opened.ReturnToEntry(ctx, key, owner, a4, a6))
}

// Free implements danmep.Coverage.
func (a *DeferredAllocator) Free(ctx context.Context, key network.Key, owner string, a4, a6 netip.Addr) error {
	opened, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(opened.Free(ctx, key, owner, a4, a6))
}

// Forget implements danmep.Coverage.
func (a *DeferredAllocator) Forget(key network.Key, owner string, a4, a6 netip.Addr) {
	if opened, err := a.allocatorOrErr(); err == nil {
		opened.Forget(key, owner, a4, a6)
	}
}

// CollectGarbage implements danmep.Collector.
func (a *DeferredAllocator) CollectGarbage(ctx context.Context, key network.Key) (int64, error) {
	opened, err := a.allocatorOrErr()
	if err != nil {
		return 0, err
	}
	freed, err := opened.CollectGarbage(ctx, key)
	return freed, allocatorError(err)
}

// ReconcileEntries implements networkcache.Settler.
func (a *DeferredAllocator) ReconcileEntries(ctx context.Context, keys ...network.Key) error {
	opened, err := a.allocatorOrErr()
	if err != nil {
		return err
	}
	return allocatorError(opened.ReconcileEntries(ctx, keys...))
}

// allocatorError makes an error of the allocator match attach.ErrTryAgain or attach.ErrNotFound as
// well, if it means the same, and makes that of another Pod's address an attach.AddressTakenError.
func allocatorError(err error) error {
	taken, isTaken := errors.AsType[*allocator.TakenError](err)
	switch {
	case isTaken && taken.Owner == "":
		return &attach.AddressTakenError{Addr: taken.Addr, Err: err}
	case errors.Is(err, status.ErrTryAgain), errors.Is(err, status.ErrUnknownState), errors.Is(err, allocator.ErrClosed):
		return sentinelError{err, attach.ErrTryAgain}
	case errors.Is(err, status.ErrNotFound):
		return sentinelError{err, attach.ErrNotFound}
	}
	return err
}

// sentinelError is an error that also matches a further sentinel. The error's text already has the
// meaning of the sentinel.
type sentinelError struct {
	error
	sentinel error
}

// Is reports whether target is the further sentinel.
func (s sentinelError) Is(target error) bool { return target == s.sentinel }

// Unwrap returns the error of the allocator.
func (s sentinelError) Unwrap() error { return s.error }

// RecordedUses returns the uses of addresses that records of the journal have. The allocator
// resumes from them.
func RecordedUses(records []*attach.Record) []allocator.Use {
	var uses []allocator.Use
	for _, rec := range records {
		if rec.OnNodeConfiguration() {
			continue
		}
		for i := range rec.Interfaces {
			ifc := &rec.Interfaces[i]
			uses = append(uses, allocator.Use{
				Key: network.KeyOf(&ifc.Network), Owner: ifc.EndpointName,
				V4: ifc.V4.Addr(), V6: ifc.V6.Addr(),
				Static4: ifc.StaticV4, Static6: ifc.StaticV6,
				Phase: usePhase(rec.State, ifc.EndpointUID),
			})
		}
	}
	return uses
}

// usePhase returns the phase of the addresses of an interface.
func usePhase(state attach.State, endpointUID string) allocator.Phase {
	switch {
	case state == attach.Released:
		return allocator.Releasing
	case endpointUID != "":
		return allocator.Published
	}
	return allocator.Claimed
}

var _ attach.Addresses = (*DeferredAllocator)(nil)
