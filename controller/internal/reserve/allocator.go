// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// Store reads and writes TenantConfigs. Each error that is not ErrConflict counts as
// "the answer was lost": the write may have been applied.
type Store interface {
	// List reads all TenantConfigs with quorum, never from a cache.
	List(ctx context.Context) ([]*v1.TenantConfig, error)
	// Update writes status.reservations and returns the object as written. It
	// returns ErrConflict when the stored object has another resourceVersion or
	// UID or is gone. It does not retry.
	Update(ctx context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error)
}

// ErrConflict says that somebody else wrote first.
var ErrConflict = errors.New("somebody else wrote first")

// ErrUnavailable says that the API server did not answer, or too many write.
var ErrUnavailable = errors.New("reservations cannot be stored now: try again")

// Allocator reserves and releases places for one process. It is safe for concurrent use.
type Allocator struct {
	store Store
	// onExcluded is told of a TenantConfig of which nothing is given, and why.
	onExcluded func(config string, why error)
	// run serves those who wait until nobody does, or the context of New ends.
	run func()

	mu      sync.Mutex
	jobs    []*job
	running bool

	// Only the serving goroutine has these.
	configs  []*cachedConfig
	readAt   time.Time
	stale    bool
	reported map[string]string
}

// New returns a desk that works until ctx ends. Left, which may be nil, is told of each
// TenantConfig that nothing is given of, and why: once, and again when the reason changes.
func New(ctx context.Context, store Store, left func(config string, why error)) *Allocator {
	d := &Allocator{store: store, stale: true, onExcluded: left}
	d.run = func() { d.processRequests(ctx) }
	return d
}

// Request asks for a place.
type Request struct {
	// Network is what the network needs.
	Network tenant.NetworkRequest
	// Owner has the token that the network will bear.
	Owner tenant.Owner
	// Taken may be nil. It is called from another goroutine.
	Taken tenant.TakenFunc
	// LiveTokens are the tokens of the networks that the namespace has, by which its budget is
	// checked; nil checks none.
	LiveTokens map[string]bool
	// DryRun decides without reserving anything.
	DryRun bool
}

// Reserve finds a place and stores who has it. The error is a *network.InvalidError
// when there is none or the namespace's budget is spent, tenant.ErrPending, else it wraps ErrUnavailable or that of ctx: then the place may
// be reserved, and is released when no network comes.
func (d *Allocator) Reserve(ctx context.Context, r Request) (tenant.Choice, error) {
	var choice tenant.Choice
	err := d.submit(ctx, func(configs []*cachedConfig) error {
		for _, h := range configs {
			if place, ok := h.book.SlotOf(r.Owner.Token); ok { // stored by a write whose answer was lost
				choice = tenant.Choice{Config: h.config(), Slot: place, NetworkID: h.model.NetworkIDs[r.Network.Type]}
				return nil
			}
		}
		found, err := tenant.ChooseSlot(r.Network, usableConfigs(configs), r.Taken)
		if err != nil {
			return err
		}
		if err := r.checkBudget(found.Slot, configs); err != nil {
			return err
		}
		choice = found
		if r.DryRun {
			return nil
		}
		return addReservation(configs, found.Config.Name, tenant.Reservation{Slot: found.Slot, Owner: r.Owner})
	})
	if err != nil {
		return tenant.Choice{}, err
	}
	return choice, nil
}

// checkBudget checks the namespace's budget, against what is reserved of all TenantConfigs:
// also of those that give nothing more.
func (r Request) checkBudget(p network.TenantSlot, configs []*cachedConfig) error {
	if r.LiveTokens == nil {
		return nil
	}
	all := make([]tenant.Config, len(configs))
	for i, h := range configs {
		all[i] = h.config()
	}
	return tenant.CheckBudget(r.Network, p, all, r.LiveTokens)
}

// Release frees the places of tokens; one that has none is no error.
func (d *Allocator) Release(ctx context.Context, tokens ...string) error {
	return d.submit(ctx, func(configs []*cachedConfig) error {
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

// List returns all reservations, freshly read, and what the TenantConfigs are.
func (d *Allocator) List(ctx context.Context) ([]tenant.Reservation, error) {
	var all []tenant.Reservation
	err := d.submit(ctx, func(configs []*cachedConfig) error {
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

// CheckConfigs has f judge what the TenantConfigs are, but for those that nothing is given of,
// and returns what it says. It is called from another goroutine, and again with what is
// read afresh before an error is returned.
func (d *Allocator) CheckConfigs(ctx context.Context, f func([]tenant.Config) error) error {
	return d.submit(ctx, func(configs []*cachedConfig) error { return f(usableConfigs(configs)) })
}

// NetworkID returns what networkIds says for a type in a namespace, or "". The error
// is a *network.InvalidError when two TenantConfigs differ.
func (d *Allocator) NetworkID(ctx context.Context, w tenant.NetworkRequest) (string, error) {
	var id string
	err := d.submit(ctx, func(configs []*cachedConfig) error {
		var err error
		id, err = tenant.NetworkID(w, usableConfigs(configs))
		return err
	})
	if err != nil { // the plan may still be at work
		return "", err
	}
	return id, nil
}

// AdoptionClaim is what a network says that it was assigned. It is a tenant's object: what it
// says is believed only where a netadmin asks for it.
type AdoptionClaim struct {
	tenant.Reservation

	// NamespaceLabels are those of the network's namespace.
	NamespaceLabels map[string]string
}

// ErrAdoptionUnconfirmed says that no netadmin asks for what a network says to be believed.
var ErrAdoptionUnconfirmed = errors.New("no TenantConfig confirms it")

// errClaimsRejected makes the desk read afresh before a claim is refused.
var errClaimsRejected = errors.New("claims were refused")

// Adopt reserves what networks say that they were assigned, each where a TenantConfig
// is for the namespace, offers the place and has the annotation danm.io/take-over: a
// netadmin restored it without its status. It returns by token why others are not
// believed: ErrUnconfirmed, or tenant.ErrTaken when another network has the place. The
// error is that of Release.
func (d *Allocator) Adopt(ctx context.Context, claims []AdoptionClaim) (map[string]error, error) {
	refused := map[string]error{}
	err := d.submit(ctx, func(configs []*cachedConfig) error {
		clear(refused)
		for _, c := range claims {
			if err := adopt(configs, c); err != nil {
				refused[c.Owner.Token] = err
			}
		}
		if len(refused) > 0 {
			return errClaimsRejected
		}
		return nil
	})
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, errClaimsRejected):
		return refused, nil
	}
	return nil, err
}

func adopt(configs []*cachedConfig, c AdoptionClaim) error {
	for _, h := range configs {
		place, ok := h.book.SlotOf(c.Owner.Token)
		switch {
		case ok && place == c.Slot:
			return nil // another replica was first
		case ok:
			return fmt.Errorf("adopt %s for %s: its token has %s: %w", c.Slot, c.Owner, place, ErrAdoptionUnconfirmed)
		}
	}
	for _, h := range configs {
		if h.permitsAdoption(c) {
			return addReservation(configs, h.model.Name, c.Reservation)
		}
	}
	return fmt.Errorf("adopt %s for %s: %w: want one that is for namespace %s, offers %s and has the annotation %s: %q",
		c.Slot, c.Owner, ErrAdoptionUnconfirmed, c.Owner.Namespace, c.Slot, v1.TakeOverAnnotation, takeOverValue)
}

// takeOverValue is the annotation's value.
const takeOverValue = "true"

func (h *cachedConfig) permitsAdoption(c AdoptionClaim) bool {
	return h.object.Annotations[v1.TakeOverAnnotation] == takeOverValue && h.exclusion == nil &&
		h.model.AppliesTo(c.NamespaceLabels) && tenant.ContainsSlot(h.model, c.Slot)
}

// cachedConfig is a TenantConfig as it was last read or written, with what was decided since.
type cachedConfig struct {
	object  *v1.TenantConfig
	model   *network.TenantConfig
	book    *tenant.Reservations
	changed bool
	// exclusion says why nothing more is given of it; what is reserved stays.
	exclusion error
}

func (h *cachedConfig) config() tenant.Config {
	return tenant.Config{TenantConfig: h.model, Reservations: h.book}
}

// usableConfigs are the TenantConfigs as package tenant knows them, but for those that give
// nothing.
func usableConfigs(configs []*cachedConfig) []tenant.Config {
	list := make([]tenant.Config, 0, len(configs))
	for _, h := range configs {
		if h.exclusion == nil {
			list = append(list, h.config())
		}
	}
	return list
}

// addReservation reserves a place of the TenantConfig of that name.
func addReservation(configs []*cachedConfig, name string, r tenant.Reservation) error {
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
