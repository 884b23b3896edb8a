// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
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

// row returns the row of a contender, with one figure per column and run.
func row(name string, outcomes []outcome) measure.Row {
	columns := make([]measure.Series, 6)
	for _, o := range outcomes {
		var both, adds, dels []time.Duration
		for _, s := range o.samples {
			both, adds, dels = append(both, s.add+s.del), append(adds, s.add), append(dels, s.del)
		}
		for i, v := range []float64{
			measure.Millis(measure.Quantile(both, 0.5)),
			measure.Millis(measure.Quantile(adds, 0.5)), measure.Millis(measure.Quantile(adds, 0.99)),
			measure.Millis(measure.Quantile(dels, 0.5)), measure.Millis(measure.Quantile(dels, 0.99)),
			float64(len(o.samples)) / o.elapsed.Seconds(),
		} {
			columns[i] = append(columns[i], v)
		}
	}
	return measure.Row{Name: name, Columns: columns}
}
