// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// job is what one caller waits for.
type job struct {
	// decide decides on what the TenantConfigs are now, and notes it there.
	decide func(configs []*cachedConfig) error
	// done takes the one answer.
	done chan error
}

// submit waits until the plan was made and stored. A plan may be made several times.
func (d *Allocator) submit(ctx context.Context, plan func([]*cachedConfig) error) error {
	j := &job{decide: plan, done: make(chan error, 1)}
	d.mu.Lock()
	d.jobs = append(d.jobs, j)
	if !d.running {
		d.running = true
		go d.run()
	}
	d.mu.Unlock()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// processRequests works until nobody waits. When ctx ends, it fails those who do.
func (d *Allocator) processRequests(ctx context.Context) {
	conflicts, failures := 0, 0
	for {
		jobs := d.pendingJobs()
		if len(jobs) == 0 {
			return
		}
		begin := time.Now()
		err := d.commitBatch(ctx, jobs)
		switch {
		case err == nil:
			conflicts, failures = 0, 0
		case errors.Is(err, ErrConflict):
			// The attempt's time tells how busy the writers are.
			d.backOff(ctx, max(initialBackoff, time.Since(begin)), conflicts)
			conflicts++
		default:
			if failures++; failures == maxFailures || ctx.Err() != nil {
				d.complete(jobs, fmt.Errorf("%w: %w", ErrUnavailable, err))
				failures = 0
				continue
			}
			d.backOff(ctx, initialBackoff, failures+2)
		}
	}
}

// pendingJobs returns who waits; with nobody, serve must end.
func (d *Allocator) pendingJobs() []*job {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = len(d.jobs) > 0
	return slices.Clip(d.jobs)
}

// complete tells the jobs, which are the first that wait.
func (d *Allocator) complete(jobs []*job, err error) {
	for _, j := range jobs {
		j.done <- err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = d.jobs[len(jobs):]
}

// commitBatch decides for all jobs, writes, and answers them. After an error nobody was
// answered, and what was decided is forgotten.
func (d *Allocator) commitBatch(ctx context.Context, jobs []*job) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := d.stale || time.Since(d.readAt) > maxCacheAge
	if asked {
		if err := d.refresh(asking); err != nil {
			d.stale = true
			return err
		}
	}
	answers := make([]error, len(jobs))
	for i, j := range jobs {
		answers[i] = j.decide(d.configs)
		if answers[i] != nil && !asked {
			d.stale = true // a refusal needs to know what is there now
			return d.commitBatch(ctx, jobs)
		}
	}
	for _, h := range d.configs {
		if !h.changed {
			continue
		}
		if err := d.updateStatus(asking, h); err != nil {
			d.stale = true
			return err
		}
	}
	for i := range jobs {
		d.complete(jobs[i:i+1], answers[i])
	}
	return nil
}

// Bounds of waiting: one request to the store, between tries, and how often the store
// may fail before those who wait are told.
const (
	requestTimeout = 5 * time.Second
	initialBackoff = 5 * time.Millisecond
	maxBackoff     = time.Second
	maxFailures    = 3
)

// backOff waits a random time.
func (d *Allocator) backOff(ctx context.Context, first time.Duration, try int) {
	t := time.NewTimer(jitter(first, maxBackoff, try))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// jitter is a random time below a bound that doubles with each try.
func jitter(first, most time.Duration, try int) time.Duration {
	return time.Duration(rand.Float64() * float64(min(first<<min(try, 20), most)))
}

// maxCacheAge is how long the TenantConfigs may be used without being read again. A write
// shows by a conflict that they are old; this is for one that was added.
const maxCacheAge = 10 * time.Second

// refresh reads all TenantConfigs. One that cannot be used is left out, or closed: it
// must not be in the way of those who draw from others.
func (d *Allocator) refresh(ctx context.Context) error {
	objects, err := d.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	d.configs = d.configs[:0]
	var standing []*network.TenantConfig
	why := map[string]error{}
	slices.SortStableFunc(objects, byAge)
	for _, o := range objects {
		if o.DeletionTimestamp != nil {
			continue
		}
		model, err := network.FromTenantConfig(o)
		if err != nil { // older than a rule
			why[o.Name] = err
			continue
		}
		closed := findOverlap(model, standing)
		if closed == nil {
			standing = append(standing, model)
		} else {
			why[o.Name] = closed
		}
		book, err := tenant.ParseReservations(o.Status.Reservations)
		if err != nil {
			why[o.Name] = fmt.Errorf("read status.reservations: %w: take the page out of the status, and have the networks in it adopted with the annotation %s: %q",
				err, v1.TakeOverAnnotation, takeOverValue)
			continue
		}
		d.configs = append(d.configs, &cachedConfig{object: o, model: model, book: book, exclusion: closed})
	}
	d.reportExcluded(why)
	d.readAt, d.stale = time.Now(), false
	return nil
}

// byAge sorts the older first, as admission does: it lets the younger of two wait.
func byAge(a, b *v1.TenantConfig) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// findOverlap says why a TenantConfig cannot stand beside older ones. Admission refuses it,
// but of two that are created at the same moment it knows only one.
func findOverlap(t *network.TenantConfig, older []*network.TenantConfig) error {
	for _, o := range older {
		if err := tenant.CheckOverlap(t, o); err != nil {
			return err
		}
	}
	return nil
}

// reportExcluded says what is left out and was not for the same reason the last time.
func (d *Allocator) reportExcluded(why map[string]error) {
	told := make(map[string]string, len(why))
	for name, err := range why {
		told[name] = err.Error()
		if d.onExcluded != nil && d.reported[name] != told[name] {
			d.onExcluded(name, err)
		}
	}
	d.reported = told
}

// updateStatus stores what was decided on a TenantConfig.
func (d *Allocator) updateStatus(ctx context.Context, h *cachedConfig) error {
	next := h.object.DeepCopy()
	next.Status.Reservations = h.book.Encode()
	written, err := d.store.Update(ctx, next)
	if err != nil {
		return fmt.Errorf("update status of TenantConfig %s: %w", h.object.Name, err)
	}
	h.object, h.changed = written, false
	return nil
}
