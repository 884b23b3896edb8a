// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"sync"
	"sync/atomic"
	"time"
)

// desk is where the claims and releases of one network wait. A goroutine serves
// it while there is work, all that waits in one write, and ends then.
type desk struct {
	a   *Allocator
	key Key

	mu      sync.Mutex
	book    ledger
	claims  []*claim
	waiters []*waiter
	// closed says that the network is gone, and the desk with it.
	closed bool
	// running says that the goroutine is there.
	running bool
	// dirty says that a write is due though nobody waits for it.
	dirty bool
	// lost is the resourceVersion of a write whose answer was lost and that
	// may still be applied; empty when there is none.
	lost string
	// naps counts the goroutine's ends in failure, for the next wake-up.
	naps int
	// retry has the object read again when the timer fires.
	retry bool
	// starved says that claims wait for what other nodes may give back.
	starved bool
	// older says that the object as read last is older than it had been before.
	older bool
	// newest is the newest version that was known before that read.
	newest uint64
	// look says that the object has moved since it was read, at looked.
	look   bool
	looked time.Time
	// timer fires at due.
	timer *time.Timer
	due   time.Time

	// shelf is what is ready; nil while nothing may be handed out of it. Only who
	// has locked mu replaces it.
	shelf atomic.Pointer[shelf]
	water water
	// allowed bounds what the shelf may have, for the pool that was seen last.
	allowed int
	// room4 and room6 are how many more addresses may go into quarantine, for the pool
	// that was seen last.
	room4, room6 int
	// pressure is the last one seen in the object, and when it was new here: clocks
	// of nodes differ.
	pressure   time.Time
	pressureAt time.Time
}

// waiter is a caller who waits for the ledger to be as asked.
type waiter struct {
	ready func(*ledger) bool
	// fresh asks for a plan from an object read after the waiter came.
	fresh bool
	// collect asks for garbage collection in that plan.
	collect   bool
	collected int64
	// recheck asks for another look at strays.
	recheck bool
	done    chan error
}

// more reports whether the goroutine has something to do.
func (d *desk) more() bool { return d.dirty || len(d.claims) > 0 || len(d.waiters) > 0 }

// poke starts the goroutine if there is work. The caller has locked d.mu.
func (d *desk) poke() {
	if d.running || !d.more() || d.a.ctx.Err() != nil {
		return
	}
	d.running = true
	d.a.wg.Go(d.serve)
}

// wait queues a waiter and pokes. One that is ready is answered at once.
func (d *desk) wait(w *waiter) {
	if !w.fresh && w.ready(&d.book) {
		w.done <- nil
		return
	}
	d.waiters = append(d.waiters, w)
	d.poke()
}

// later has the desk looked after in a while, if not sooner.
func (d *desk) later(after time.Duration) {
	due := time.Now().Add(after)
	if d.a.ctx.Err() != nil || d.timer != nil && !due.Before(d.due) {
		return
	}
	if d.timer != nil {
		d.timer.Stop()
	}
	d.due = due
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer != t {
			return // another one has taken its place
		}
		d.timer = nil
		d.tend(time.Now())
	})
	d.timer = t
}

// withdraw takes a caller's claim back. It reports false when the claim was
// answered already.
func (d *desk) withdraw(c *claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-c.done:
		return false
	default:
	}
	c.gone = true
	d.claims = without(d.claims, c)
	return true
}

func (d *desk) leave(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters = without(d.waiters, w)
}

func without[T comparable](list []T, x T) []T {
	kept := list[:0:0]
	for _, y := range list {
		if y != x {
			kept = append(kept, y)
		}
	}
	return kept
}
