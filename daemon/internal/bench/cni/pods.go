// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// sample has the durations of one Pod's ADD and DEL.
type sample struct{ add, del time.Duration }

// outcome is the outcome of one run.
type outcome struct {
	elapsed time.Duration
	samples []sample
}

// runPods adds and deletes n Pods, one at a time in each network namespace.
func runPods(ctx context.Context, c contender, pods []string, n, run int) (outcome, error) {
	var out outcome
	var mu sync.Mutex
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	start := time.Now()
	for w, netns := range pods {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(pods) {
				var s sample
				s, errs[w] = addAndDelete(ctx, c, c.sandbox(run, i, netns))
				mu.Lock()
				out.samples = append(out.samples, s)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	out.elapsed = time.Since(start)
	return out, errors.Join(errs...)
}

// addAndDelete runs ADD and DEL of one Pod.
func addAndDelete(ctx context.Context, c contender, box sandbox) (s sample, err error) {
	if s.add, err = c.execPlugin(ctx, "ADD", box); err != nil {
		return s, err
	}
	s.del, err = c.execPlugin(ctx, "DEL", box)
	return s, err
}
