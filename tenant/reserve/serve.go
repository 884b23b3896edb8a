// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of waiting: one request to the store, between tries, and how often the store
// may fail before those who wait are told.
const (
	askTimeout  = 5 * time.Second
	firstWait   = 5 * time.Millisecond
	longestWait = time.Second
	maxFailures = 3
)

// serve works until nobody waits. When ctx ends, it fails those who do.
func (d *Desk) serve(ctx context.Context) {
	conflicts, failures := 0, 0
	for {
		jobs := d.waiting()
		if len(jobs) == 0 {
			return
		}
		begin := time.Now()
		err := d.attempt(ctx, jobs)
		switch {
		case err == nil:
			conflicts, failures = 0, 0
		case errors.Is(err, ErrConflict):
			// The attempt's time tells how busy the writers are.
			d.pause(ctx, max(firstWait, time.Since(begin)), conflicts)
			conflicts++
		default:
			if failures++; failures == maxFailures || ctx.Err() != nil {
				d.answer(jobs, fmt.Errorf("%w: %w", ErrUnavailable, err))
				failures = 0
				continue
			}
			d.pause(ctx, firstWait, failures+2)
		}
	}
}

// waiting returns who waits; with nobody, serve must end.
func (d *Desk) waiting() []*job {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = len(d.jobs) > 0
	return slices.Clip(d.jobs)
}

// answer tells the jobs, which are the first that wait.
func (d *Desk) answer(jobs []*job, err error) {
	for _, j := range jobs {
		j.done <- err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = d.jobs[len(jobs):]
}

// attempt decides for all jobs, writes, and answers them. After an error nobody was
// answered, and what was decided is forgotten.
func (d *Desk) attempt(ctx context.Context, jobs []*job) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	asked := d.stale || time.Since(d.read) > fresh
	if asked {
		if err := d.refresh(asking); err != nil {
			d.stale = true
			return err
		}
	}
	answers := make([]error, len(jobs))
	for i, j := range jobs {
		answers[i] = j.plan(d.configs)
		if answers[i] != nil && !asked {
			d.stale = true // a refusal needs to know what is there now
			return d.attempt(ctx, jobs)
		}
	}
	for _, h := range d.configs {
		if !h.changed {
			continue
		}
		if err := d.write(asking, h); err != nil {
			d.stale = true
			return err
		}
	}
	for i := range jobs {
		d.answer(jobs[i:i+1], answers[i])
	}
	return nil
}

// pause waits a random time.
func (d *Desk) pause(ctx context.Context, first time.Duration, try int) {
	t := time.NewTimer(jitter(first, longestWait, try))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
