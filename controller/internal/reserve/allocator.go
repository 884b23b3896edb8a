// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/groupcommit"
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

// Bounds of waiting: one request to the store, one random wait between attempts, and how
// often the store may fail before those who wait get the error.
const (
	requestTimeout = 5 * time.Second
	initialBackoff = 5 * time.Millisecond
	maxBackoff     = time.Second
	maxFailures    = 3
)

// Allocator reserves and releases places for one process. It is safe for concurrent use.
type Allocator struct {
	store Store
	// onExcluded is called for a TenantConfig of which nothing is given, with the reason.
	onExcluded func(config string, why error)
	// queue has the decisions that wait for the next write.
	queue *groupcommit.Queue[decision]

	// Only the queue's writer has these.
	configs  []*cachedConfig
	readAt   time.Time
	stale    bool
	reported map[string]string
}

// decision decides on what the TenantConfigs are now, and records it there.
type decision func(configs []*cachedConfig) error

// New returns an Allocator that works until ctx ends. onExcluded, which may be nil, is called
// for each TenantConfig of which nothing is given: once, and again when the reason changes.
func New(ctx context.Context, store Store, onExcluded func(config string, why error)) *Allocator {
	d := &Allocator{store: store, stale: true, onExcluded: onExcluded}
	d.queue = groupcommit.New[decision](ctx, groupcommit.Config{
		Policy: groupcommit.Policy{
			IsConflict: func(err error) bool { return errors.Is(err, ErrConflict) },
			MinBackoff: initialBackoff, MaxBackoff: maxBackoff, MaxFailures: maxFailures,
		},
		Commit:       d.commit,
		FailureError: func(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) },
	})
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

// submit waits until a decision was made and stored. It may be made several times.
func (d *Allocator) submit(ctx context.Context, decide decision) error {
	r := d.queue.Add(decide)
	switch {
	case d.queue.Wait(ctx, r):
		return r.Err()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: the program ends", ErrUnavailable)
}

// commit decides for all who wait, writes, and answers them. After an error no one was
// answered, and what was decided is dropped.
func (d *Allocator) commit(ctx context.Context) error {
	return d.commitBatch(ctx, d.queue.Pending())
}

func (d *Allocator) commitBatch(ctx context.Context, requests []*groupcommit.Request[decision]) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh := d.stale || time.Since(d.readAt) > maxCacheAge
	if fresh {
		if err := d.refresh(asking); err != nil {
			d.stale = true
			return err
		}
	}
	answers := make([]error, len(requests))
	for i, r := range requests {
		answers[i] = r.Value(d.configs)
		if answers[i] != nil && !fresh {
			d.stale = true // a refusal needs to know what is there now
			return d.commitBatch(ctx, requests)
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
	for i, r := range requests {
		r.Answer(answers[i])
	}
	return nil
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
