// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// flap turns a tenth of the Pods ready and not, as fast as the clients can, and looks
// at what is left when they stop.
func (f *fleet) flap(ctx context.Context, c *scene.Controller, out io.Writer) error {
	before, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	order := rand.Perm(len(f.pods))[:max(len(f.pods)/10, f.o.workers)]
	var flaps atomic.Int64
	until := time.Now().Add(f.o.flap)
	workers, flapping := errgroup.WithContext(ctx)
	for w := range f.o.workers {
		workers.Go(func() error {
			// Each has Pods of its own: of two writes the later one would be unknown.
			for n := w; time.Now().Before(until); n += f.o.workers {
				if n >= len(order) {
					n = w
				}
				if err := scene.SetReady(flapping, f.env.Client, f.pods[order[n]], rand.IntN(2) == 0); err != nil {
					return err
				}
				flaps.Add(1)
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	ended := time.Now()
	if err := f.rest(ctx); err != nil {
		return err
	}
	rested := time.Since(ended)
	writes, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	stale, err := c.Metric(ctx, "patchbay_service_stale_total")
	if err != nil {
		return err
	}
	now, peak, err := c.Memory()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d Pods flap for %s: %d changes of Pods (%.0f/s), %.0f writes of slices (%.2f for a change), %.0f more refused as stale and planned again; nothing lost or stale %.1f s after; memory %d MiB, at its peak %d MiB\n",
		len(order), f.o.flap, flaps.Load(), float64(flaps.Load())/f.o.flap.Seconds(), writes-before, (writes-before)/float64(max(flaps.Load(), 1)), stale,
		rested.Seconds(), now>>20, peak>>20)
	return err
}

// rest waits until what is stored is what should be: nothing lost, nothing stale.
func (f *fleet) rest(ctx context.Context) error {
	for limit := time.Now().Add(patience); ; {
		err := f.check(ctx)
		if err == nil || time.Now().After(limit) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
