// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How long the store may fail before those who wait are told to try again, and
// how long the goroutine then rests at most before it looks by itself.
const (
	maxFailures = 4
	maxWait     = 2 * time.Second
	maxNap      = 30 * time.Second

	// spread is over how many times the length of an attempt writers spread out that
	// met, and patient how many conflicts in a row that may not help. Measured with 50
	// writers: less spread makes more of them meet, and doubling at once leaves the last
	// ones waiting when all others are through.
	spread  = 4
	patient = 6
)

// serve makes attempts until nothing is left to do, or the store is away.
func (d *desk) serve() {
	conflicts, failures := 0, 0
	for d.again() {
		begin := time.Now()
		err := d.attempt(d.a.ctx)
		switch {
		case err == nil:
			conflicts, failures = 0, 0
			d.starve()
		case errors.Is(err, ErrConflict):
			d.a.pause(max(d.a.cfg.Backoff, spread*time.Since(begin)), max(conflicts-patient, 0))
			conflicts++
		default:
			if failures++; failures == maxFailures || d.a.ctx.Err() != nil {
				d.giveUp(err)
				return
			}
			d.a.pause(d.a.cfg.Backoff, failures+2)
		}
	}
}

// starve waits a while when claims are left that only other nodes can help.
func (d *desk) starve() {
	d.mu.Lock()
	starved := d.starved
	d.mu.Unlock()
	if starved {
		d.a.sleep(starvedPause/2 + d.a.jitter(starvedPause, starvedPause, 0))
	}
}

// again reports whether there is work; if not, the goroutine must end.
func (d *desk) again() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.more() {
		return true
	}
	d.running = false
	d.naps = 0
	if d.book.slack() {
		d.later(d.a.cfg.Idle)
	}
	d.schedule(time.Now())
	return false
}

// giveUp answers everybody with the error and ends the goroutine. What is still
// owed to the store is tried again later.
func (d *desk) giveUp(cause error) {
	err := fmt.Errorf("%w: %w", ErrTryAgain, cause)
	if d.a.ctx.Err() != nil {
		err = ErrClosed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = false
	d.answerAll(err)
	if d.dirty || d.book.owing() {
		d.dirty = false
		d.later(d.a.jitter(time.Second, maxNap, d.naps) + time.Second/2)
		d.naps++
	}
}

// answerAll answers everybody who waits with one error; nil is for waiters only.
func (d *desk) answerAll(err error) {
	for _, c := range d.claims {
		c.reply(grant{err: err})
	}
	for _, w := range d.waiters {
		w.done <- err
	}
	d.claims, d.waiters = nil, nil
}

// reply answers a claim.
func (c *claim) reply(g grant) {
	c.answer = g
	close(c.done)
}

// jitter is a random time below a bound that doubles with each try: full
// jitter, so that writers who met once do not meet again.
func (a *Allocator) jitter(first, most time.Duration, try int) time.Duration {
	bound := min(first<<min(try, 20), most)
	return time.Duration(a.cfg.Rand() * float64(bound))
}

// pause waits after a conflict or a failure. After a conflict, first is a few times what
// the attempt took: the more writers there are, the slower is each, so they spread out
// over as long as they need, and the bound doubles only if that does not help.
func (a *Allocator) pause(first time.Duration, try int) {
	a.sleep(a.jitter(first, maxWait, try))
}

// sleep waits, or until Close.
func (a *Allocator) sleep(how time.Duration) {
	t := time.NewTimer(how)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.ctx.Done():
	}
}

// ask makes one request to the store, bounded in time.
func ask[T any](ctx context.Context, a *Allocator, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	return f(ctx)
}
