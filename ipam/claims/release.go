// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"net/netip"
)

// Published says that the DanmEp of a claim exists; owner is its name. It is
// called once per claim, and returns at once.
func (a *Allocator) Published(key Key, owner string, a4, a6 netip.Addr) {
	d := a.desk(key)
	defer d.mu.Unlock()
	d.book.publish(owner, both(a4, a6))
	d.settleLater()
}

// Return puts the addresses of an attachment back into the node's entry; after
// it, the DanmEp may go. A second Return, and one of addresses that are not this
// node's or of a network that is gone, is a no-op.
//
// owner is the name of the attachment's DanmEp. A release may be repeated, even
// from a journal that is behind, long after its address is another Pod's: only
// the owner releases, until Forget.
func (a *Allocator) Return(ctx context.Context, key Key, owner string, a4, a6 netip.Addr) error {
	if err := a.decided(ctx, "return", key); err != nil {
		return err
	}
	d := a.desk(key)
	addrs := d.book.owned(owner, both(a4, a6))
	d.book.giveBack(addrs)
	return d.await(ctx, "return", &waiter{ready: func(l *ledger) bool { return !l.any(addrs, returning) }})
}

// Free takes an attachment's addresses out of use. It is called when their DanmEp
// is gone, or never was. A dynamic address rests for a while, covered by the node's
// entry, and is held or freed then; a static one is freed before Free returns. A second Free is a no-op, and
// so is one of addresses that the node's entry does not cover. An attachment
// without addresses needs the entry no more, whether it had a DanmEp or not.
func (a *Allocator) Free(ctx context.Context, key Key, owner string, a4, a6 netip.Addr) error {
	if err := a.decided(ctx, "free", key); err != nil {
		return err
	}
	d := a.desk(key)
	addrs := both(a4, a6)
	if len(addrs) == 0 {
		d.book.settle(owner)
	}
	addrs = d.book.owned(owner, addrs)
	d.book.free(addrs, d.restUntil())
	d.settleLater()
	return d.await(ctx, "free", &waiter{ready: func(l *ledger) bool { return !l.any(addrs, freeing) }})
}

// Forget says that nothing will release the attachment again: it is out of the
// journal.
func (a *Allocator) Forget(key Key, owner string, a4, a6 netip.Addr) {
	d := a.desk(key)
	defer d.mu.Unlock()
	for _, addr := range []netip.Addr{a4, a6, {}} {
		delete(d.book.done, done{owner, addr})
	}
}

// Collect frees the bits that neither an entry nor a DanmEp covers, and returns
// how many.
func (a *Allocator) Collect(ctx context.Context, key Key) (int64, error) {
	w := &waiter{fresh: true, collect: true, ready: func(*ledger) bool { return true }}
	err := a.desk(key).await(ctx, "collect", w)
	if err != nil {
		return 0, err
	}
	return w.collected, nil
}

// decided waits until it is known who of several former owners has an address.
func (a *Allocator) decided(ctx context.Context, verb string, key Key) error {
	d := a.desk(key)
	if len(d.book.rivals) == 0 {
		d.mu.Unlock()
		return nil
	}
	return d.await(ctx, verb, &waiter{fresh: true, ready: func(l *ledger) bool { return len(l.rivals) == 0 }})
}

// await queues a waiter at the locked desk, unlocks it and waits.
func (d *desk) await(ctx context.Context, verb string, w *waiter) error {
	w.done = make(chan error, 1)
	if d.a.ctx.Err() != nil {
		d.mu.Unlock()
		return fmt.Errorf("%s addresses of network %v: %w", verb, d.key.Ref, ErrClosed)
	}
	d.wait(w)
	d.mu.Unlock()
	var err error
	select {
	case err = <-w.done:
	case <-d.a.ctx.Done():
		d.leave(w)
		err = ErrClosed
	case <-ctx.Done():
		d.leave(w)
		err = fmt.Errorf("%w: %w", ErrTryAgain, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s addresses of network %v: %w", verb, d.key.Ref, err)
	}
	return nil
}
