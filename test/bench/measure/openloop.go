// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// OpenLoop makes requests at a fixed rate, however long each takes, as many independent clients do.
type OpenLoop struct {
	// Rate is the number of requests in a second, Requests the number of all.
	Rate, Requests int
}

// Result is what became of the requests of an OpenLoop.
type Result struct {
	// Took are the times from when each request was to start to its end. A request that starts late,
	// because the machine is busy, counts the delay: otherwise a slow answer would hide the requests
	// that it holds up (coordinated omission).
	Took []time.Duration
	// Elapsed is the time from when the first request was to start to the end of the last one.
	Elapsed time.Duration
}

// Reached returns the number of requests that were completed in a second.
func (r Result) Reached() float64 { return float64(len(r.Took)) / r.Elapsed.Seconds() }

// Run makes the requests, and returns when all are completed. The first error ends it. Do gets the
// number of the request.
func (l OpenLoop) Run(ctx context.Context, do func(ctx context.Context, i int) error) (Result, error) {
	return l.run(ctx, time.Now(), do)
}

// run is Run with the time at which the first request is to start.
func (l OpenLoop) run(ctx context.Context, begin time.Time, do func(ctx context.Context, i int) error) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := Result{Took: make([]time.Duration, l.Requests)}
	var running sync.WaitGroup
	for i := range l.Requests {
		start := begin.Add(time.Second * time.Duration(i) / time.Duration(l.Rate))
		if !waitUntil(ctx, start) {
			break
		}
		running.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(fmt.Errorf("request %d: %w", i, err))
			}
			r.Took[i] = time.Since(start)
		})
	}
	running.Wait()
	r.Elapsed = time.Since(begin)
	return r, context.Cause(ctx)
}

// waitUntil waits, and reports false when ctx ended.
func waitUntil(ctx context.Context, start time.Time) bool {
	wait := time.Until(start)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}
