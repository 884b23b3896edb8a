// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"sync"
)

// Resume takes over what the journal knows of a former life: the addresses that this
// node answers for, and what Config.Remember was told, as far as it is of this Node's
// UID. It is called once, before everything else, and makes no request.
func (a *Allocator) Resume(uses []Use, seqs map[Key]int64) {
	for _, u := range uses {
		d := a.desk(u.Key)
		d.book.resume(u)
		d.mu.Unlock()
	}
	for key, seq := range seqs {
		d := a.desk(key)
		d.book.remembered = seq
		d.mu.Unlock()
	}
}

// settleAtOnce bounds the networks that Settle reads at a time: all nodes of a
// cluster may be starting together.
const settleAtOnce = 16

// Settle compares the node's entries in these networks with what Resume was
// told and with the node's own DanmEps, frees the rest, and fences writes of a
// former life that are still on their way. Networks that are gone are no error.
//
// A write of the former life that found no entry to conflict with may be applied
// later, as long as the API server works on requests (a minute): a second Settle
// after that frees what it claimed.
func (a *Allocator) Settle(ctx context.Context, keys ...Key) error {
	errs := make([]error, len(keys))
	slots := make(chan struct{}, settleAtOnce)
	var wg sync.WaitGroup
	for i, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			settled := func(l *ledger) bool { return l.verified && !l.owing() }
			d := a.desk(key)
			errs[i] = d.await(ctx, "settle", &waiter{fresh: true, recheck: d.book.strays(), ready: settled})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// GiveBack ends all holds and rests, for an orderly shutdown: what nobody uses is
// free for other nodes. It waits for the writes, as long as ctx lasts; what they did
// not reach stays in the node's entries, for its next life.
func (a *Allocator) GiveBack(ctx context.Context) error {
	a.closing.Store(true)
	desks := *a.desks.Load()
	errs := make(chan error, len(desks))
	slots := make(chan struct{}, settleAtOnce)
	for _, d := range desks {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			errs <- d.giveBack(ctx)
		}()
	}
	var all []error
	for range desks {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// giveBack ends the hold of one network.
func (d *desk) giveBack(ctx context.Context) error {
	d.mu.Lock()
	if d.closed || d.shelf.Load() == nil && len(d.book.rest) == 0 && len(d.book.quarantine) == 0 {
		d.mu.Unlock()
		return nil
	}
	d.clear()
	back := func(l *ledger) bool { return !l.owing() }
	return d.await(ctx, "give back", &waiter{fresh: true, ready: back})
}
