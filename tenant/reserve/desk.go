// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// Desk reserves and releases places for one process. It is safe for concurrent use.
type Desk struct {
	store Store
	// left is told of a TenantConfig of which nothing is given, and why.
	left func(config string, why error)
	// work serves those who wait until nobody does, or the context of New ends.
	work func()

	mu      sync.Mutex
	jobs    []*job
	running bool

	// Only the serving goroutine has these.
	configs []*held
	read    time.Time
	stale   bool
	told    map[string]string
}

// New returns a desk that works until ctx ends. Left, which may be nil, is told of each
// TenantConfig that nothing is given of, and why: once, and again when the reason changes.
func New(ctx context.Context, store Store, left func(config string, why error)) *Desk {
	d := &Desk{store: store, stale: true, left: left}
	d.work = func() { d.serve(ctx) }
	return d
}

// job is what one caller waits for.
type job struct {
	// plan decides on what the TenantConfigs are now, and notes it there.
	plan func(configs []*held) error
	// done takes the one answer.
	done chan error
}

// Reserve finds a place and stores who has it. The error is a *network.InvalidError
// when there is none or the namespace's budget is spent, tenant.ErrPending, else it wraps ErrUnavailable or that of ctx: then the place may
// be reserved, and is released when no network comes.
func (d *Desk) Reserve(ctx context.Context, r Request) (tenant.Choice, error) {
	var choice tenant.Choice
	err := d.do(ctx, func(configs []*held) error {
		for _, h := range configs {
			if place, ok := h.book.Of(r.Owner.Token); ok { // stored by a write whose answer was lost
				choice = tenant.Choice{Config: h.config(), Place: place, NetworkID: h.model.NetworkIDs[r.Wish.Type]}
				return nil
			}
		}
		found, err := tenant.Choose(r.Wish, views(configs), r.Taken)
		if err != nil {
			return err
		}
		if err := r.affordable(found.Place, configs); err != nil {
			return err
		}
		choice = found
		if r.DryRun {
			return nil
		}
		return add(configs, found.Config.Name, tenant.Reservation{Place: found.Place, Owner: r.Owner})
	})
	if err != nil {
		return tenant.Choice{}, err
	}
	return choice, nil
}

// affordable checks the namespace's budget, against what is reserved of all TenantConfigs:
// also of those that give nothing more.
func (r Request) affordable(p network.Place, configs []*held) error {
	if r.Alive == nil {
		return nil
	}
	all := make([]tenant.Config, len(configs))
	for i, h := range configs {
		all[i] = h.config()
	}
	return tenant.CheckBudget(r.Wish, p, all, r.Alive)
}

// Release frees the places of tokens; one that has none is no error.
func (d *Desk) Release(ctx context.Context, tokens ...string) error {
	return d.do(ctx, func(configs []*held) error {
		for _, h := range configs {
			for _, token := range tokens {
				if h.book.Remove(token) {
					h.changed = true
				}
			}
		}
		return nil
	})
}

// Reserved returns all reservations, freshly read, and what the TenantConfigs are.
func (d *Desk) Reserved(ctx context.Context) ([]tenant.Reservation, error) {
	var all []tenant.Reservation
	err := d.do(ctx, func(configs []*held) error {
		all = nil
		for _, h := range configs {
			for r := range h.book.All() {
				all = append(all, r)
			}
		}
		return nil
	})
	if err != nil { // the plan may still be at work
		return nil, err
	}
	return all, nil
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

// jitter is a random time below a bound that doubles with each try.
func jitter(first, most time.Duration, try int) time.Duration {
	return time.Duration(rand.Float64() * float64(min(first<<min(try, 20), most)))
}

// add reserves a place of the TenantConfig of that name.
func add(configs []*held, name string, r tenant.Reservation) error {
	for _, h := range configs {
		if h.model.Name != name {
			continue
		}
		before := h.book.Len()
		if err := h.book.Add(r); err != nil {
			return err
		}
		h.changed = h.changed || h.book.Len() != before
	}
	return nil
}

// views are the TenantConfigs as package tenant knows them, but for those that give
// nothing.
func views(configs []*held) []tenant.Config {
	list := make([]tenant.Config, 0, len(configs))
	for _, h := range configs {
		if h.closed == nil {
			list = append(list, h.config())
		}
	}
	return list
}

// Look has f judge what the TenantConfigs are, but for those that nothing is given of,
// and returns what it says. It is called from another goroutine, and again with what is
// read afresh before an error is returned.
func (d *Desk) Look(ctx context.Context, f func([]tenant.Config) error) error {
	return d.do(ctx, func(configs []*held) error { return f(views(configs)) })
}

// NetworkID returns what networkIds says for a type in a namespace, or "". The error
// is a *network.InvalidError when two TenantConfigs differ.
func (d *Desk) NetworkID(ctx context.Context, w tenant.Wish) (string, error) {
	var id string
	err := d.do(ctx, func(configs []*held) error {
		var err error
		id, err = tenant.NetworkID(w, views(configs))
		return err
	})
	if err != nil { // the plan may still be at work
		return "", err
	}
	return id, nil
}
