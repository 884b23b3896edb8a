// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
)

// Allocator claims and releases the addresses of one node. Its methods may be
// called from any goroutine.
type Allocator struct {
	store Store
	cfg   Config
	stats counters

	// ctx ends with Close; wg counts the desks' goroutines.
	ctx   context.Context
	close context.CancelFunc
	wg    sync.WaitGroup

	// mu is for changes of desks; no desk's lock is taken or held with it, but by
	// Close. The map itself is never changed but replaced: a claim that a hold
	// serves reads it without a lock.
	mu    sync.Mutex
	desks atomic.Pointer[map[Key]*desk]
	// versions are the newest of the networks as the watch saw them.
	versions versions
	// low are desks whose holds have few addresses left.
	low chan *desk
	// closing says that nothing is to be held any more.
	closing atomic.Bool
}

// New returns an Allocator for one node. No two may be at work for one node at
// a time: the node daemon's lock on its journal sees to that.
func New(store Store, cfg Config) *Allocator {
	ctx, cancel := context.WithCancel(context.Background())
	a := &Allocator{
		store: store, cfg: cfg.withDefaults(),
		ctx: ctx, close: cancel,
		low: make(chan *desk, 64),
	}
	a.desks.Store(&map[Key]*desk{})
	a.wg.Go(a.refill)
	return a
}

// desk returns the network's desk, locked. One that is making a plan keeps
// nobody from the others.
func (a *Allocator) desk(key Key) *desk {
	for {
		d := a.find(key)
		if d == nil {
			d = a.open(key)
		}
		d.mu.Lock()
		if !d.closed {
			return d
		}
		d.mu.Unlock() // its network is gone, and so it is from the map
	}
}

// find returns the network's desk, not locked, or nil.
func (a *Allocator) find(key Key) *desk { return (*a.desks.Load())[key] }

// open makes a desk, unless one is there by now.
func (a *Allocator) open(key Key) *desk {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.find(key); d != nil {
		return d
	}
	d := &desk{a: a, key: key, book: newLedger()}
	desks := maps.Clone(*a.desks.Load())
	desks[key] = d
	a.desks.Store(&desks)
	return d
}

// drop takes a desk out of the map.
func (a *Allocator) drop(d *desk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.find(d.key) == d {
		desks := maps.Clone(*a.desks.Load())
		delete(desks, d.key)
		a.desks.Store(&desks)
	}
}

// wake has a desk look at its hold. Nobody waits for that: if too many are low at
// once, the next claim asks again.
func (a *Allocator) wake(d *desk) {
	select {
	case a.low <- d:
	default:
		if s := d.shelf.Load(); s != nil {
			s.asked.Store(false)
		}
	}
}

// refill lets desks write that are low.
func (a *Allocator) refill() {
	for {
		select {
		case d := <-a.low:
			d.mu.Lock()
			d.dirty = true
			d.poke()
			d.mu.Unlock()
		case <-a.ctx.Done():
			return
		}
	}
}

// Close stops all work and waits for its end. Who waits gets ErrClosed.
func (a *Allocator) Close() {
	a.close()
	a.mu.Lock()
	for _, d := range *a.desks.Load() {
		d.mu.Lock()
		d.shelf.Store(nil)
		if d.timer != nil {
			d.timer.Stop()
		}
		d.mu.Unlock()
	}
	a.mu.Unlock()
	a.wg.Wait()
}
