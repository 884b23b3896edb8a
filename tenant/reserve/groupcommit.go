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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// job is what one caller waits for.
type job struct {
	// plan decides on what the TenantConfigs are now, and notes it there.
	plan func(configs []*held) error
	// done takes the one answer.
	done chan error
}

// do waits until the plan was made and stored. A plan may be made several times.
func (d *Desk) do(ctx context.Context, plan func([]*held) error) error {
	j := &job{plan: plan, done: make(chan error, 1)}
	d.mu.Lock()
	d.jobs = append(d.jobs, j)
	if !d.running {
		d.running = true
		go d.work()
	}
	d.mu.Unlock()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

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

// Bounds of waiting: one request to the store, between tries, and how often the store
// may fail before those who wait are told.
const (
	askTimeout  = 5 * time.Second
	firstWait   = 5 * time.Millisecond
	longestWait = time.Second
	maxFailures = 3
)

// pause waits a random time.
func (d *Desk) pause(ctx context.Context, first time.Duration, try int) {
	t := time.NewTimer(jitter(first, longestWait, try))
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

// fresh is how long the TenantConfigs may be used without being read again. A write
// shows by a conflict that they are old; this is for one that was added.
const fresh = 10 * time.Second

// refresh reads all TenantConfigs. One that cannot be used is left out, or closed: it
// must not be in the way of those who draw from others.
func (d *Desk) refresh(ctx context.Context) error {
	objects, err := d.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	d.configs = d.configs[:0]
	var standing []*network.Tenancy
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
		closed := overlaps(model, standing)
		if closed == nil {
			standing = append(standing, model)
		} else {
			why[o.Name] = closed
		}
		book, err := tenant.ParseBook(o.Status.Reservations)
		if err != nil {
			why[o.Name] = fmt.Errorf("read status.reservations: %w: take the page out of the status, and have the networks in it adopted with the annotation %s: %q",
				err, v1.TakeOverAnnotation, takeOver)
			continue
		}
		d.configs = append(d.configs, &held{object: o, model: model, book: book, closed: closed})
	}
	d.tell(why)
	d.read, d.stale = time.Now(), false
	return nil
}

// byAge sorts the older first, as admission does: it lets the younger of two wait.
func byAge(a, b *v1.TenantConfig) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// overlaps says why a TenantConfig cannot stand beside older ones. Admission refuses it,
// but of two that are created at the same moment it knows only one.
func overlaps(t *network.Tenancy, older []*network.Tenancy) error {
	for _, o := range older {
		if err := tenant.Overlap(t, o); err != nil {
			return err
		}
	}
	return nil
}

// tell says what is left out and was not for the same reason the last time.
func (d *Desk) tell(why map[string]error) {
	told := make(map[string]string, len(why))
	for name, err := range why {
		told[name] = err.Error()
		if d.left != nil && d.told[name] != told[name] {
			d.left(name, err)
		}
	}
	d.told = told
}

// write stores what was decided on a TenantConfig.
func (d *Desk) write(ctx context.Context, h *held) error {
	next := h.object.DeepCopy()
	next.Status.Reservations = h.book.Encode()
	written, err := d.store.Update(ctx, next)
	if err != nil {
		return fmt.Errorf("update status of TenantConfig %s: %w", h.object.Name, err)
	}
	h.object, h.changed = written, false
	return nil
}
