// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"sync"
)

// Resume takes over what the journal knows of a former life. It is called once,
// before everything else, and makes no request.
func (a *Allocator) Resume(uses []Use) {
	for _, u := range uses {
		d := a.desk(u.Key)
		d.book.resume(u)
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
			errs[i] = a.desk(key).await(ctx, "settle", &waiter{fresh: true, ready: settled})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
