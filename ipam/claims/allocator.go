// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"
)

// Allocator claims and releases the addresses of one node. Its methods may be
// called from any goroutine.
type Allocator struct {
	store Store
	cfg   Config

	// ctx ends with Close; wg counts the desks' goroutines.
	ctx   context.Context
	close context.CancelFunc
	wg    sync.WaitGroup

	// mu guards desks; no desk's lock is taken or held with it, but by Close.
	mu    sync.Mutex
	desks map[Key]*desk
}

// New returns an Allocator for one node. No two may be at work for one node at
// a time: the node daemon's lock on its journal sees to that.
func New(store Store, cfg Config) *Allocator {
	ctx, cancel := context.WithCancel(context.Background())
	return &Allocator{
		store: store, cfg: cfg.withDefaults(),
		ctx: ctx, close: cancel, desks: map[Key]*desk{},
	}
}

// desk returns the network's desk, locked. One that is making a plan keeps
// nobody from the others.
func (a *Allocator) desk(key Key) *desk {
	for {
		a.mu.Lock()
		d := a.desks[key]
		if d == nil {
			d = &desk{a: a, key: key, book: newLedger()}
			a.desks[key] = d
		}
		a.mu.Unlock()
		d.mu.Lock()
		if !d.closed {
			return d
		}
		d.mu.Unlock() // its network is gone, and so it is from the map
	}
}

// Close stops all work and waits for its end. Who waits gets ErrClosed.
func (a *Allocator) Close() {
	a.close()
	a.mu.Lock()
	for _, d := range a.desks {
		d.mu.Lock()
		if d.timer != nil {
			d.timer.Stop()
		}
		d.mu.Unlock()
	}
	a.mu.Unlock()
	a.wg.Wait()
}
