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

// Store reads and writes TenantConfigs. After an error other than ErrConflict, the write may have been
// applied.
type Store interface {
	// List reads all TenantConfigs with quorum, never from a cache.
	List(ctx context.Context) ([]*v1.TenantConfig, error)
	// Update writes status.reservations and returns the object as written. It
	// returns ErrConflict when the stored object has another resourceVersion or
	// UID or is gone. It does not retry.
	Update(ctx context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error)
}

// ErrConflict means that another writer has changed the TenantConfig.
var ErrConflict = errors.New("TenantConfig was changed by another writer")

// ErrUnavailable means that the API server did not respond, or that there were too many conflicts.
var ErrUnavailable = errors.New("reservations cannot be stored now: try again")

// Limits of one request to the store, of the random wait between attempts, and of failures in a row
// before callers get the error.
const (
	requestTimeout = 5 * time.Second
	initialBackoff = 5 * time.Millisecond
	maxBackoff     = time.Second
	maxFailures    = 3
)

// Allocator reserves and releases slots for one process. It is safe for concurrent use.
type Allocator struct {
	store Store
	// onExcluded is called for a TenantConfig that is excluded from reservations, with the reason.
	onExcluded func(config string, why error)
	// queue has the decisions that wait for the next write.
	queue *groupcommit.Queue[decision]

	// Only the queue's writer uses the fields below.
	configs  []*cachedConfig
	readAt   time.Time
	stale    bool
	reported map[string]string
}

// decision serves a request from the current TenantConfigs, and records its changes in them.
type decision func(configs []*cachedConfig) error

// New returns an Allocator that works until ctx ends. onExcluded, which may be nil, is called for each
// TenantConfig that is excluded from reservations: once, and again when the reason changes.
func New(ctx context.Context, store Store, onExcluded func(config string, why error)) *Allocator {
	a := &Allocator{store: store, stale: true, onExcluded: onExcluded}
	a.queue = groupcommit.New[decision](ctx, groupcommit.Config{
		Policy: groupcommit.Policy{
			IsConflict: func(err error) bool { return errors.Is(err, ErrConflict) },
			MinBackoff: initialBackoff, MaxBackoff: maxBackoff, MaxFailures: maxFailures,
		},
		Commit:       a.commit,
		FailureError: func(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) },
	})
	return a
}

// Request requests a slot.
type Request struct {
	// Network describes the network.
	Network tenant.NetworkRequest
	// Owner has the token that the network will have.
	Owner tenant.Owner
	// Taken may be nil. It is called from another goroutine.
	Taken tenant.TakenFunc
	// LiveTokens are the tokens of the namespace's networks, for the check of its budget; nil
	// means no check.
	LiveTokens map[string]bool
	// DryRun decides without a reservation.
	DryRun bool
}

// Reserve finds a slot and stores its reservation. The error is a *network.InvalidError if no slot is
// free or the namespace's budget is used up, or tenant.ErrPending. Otherwise it wraps ErrUnavailable or
// the error of ctx; then the slot may be reserved, and is released if no network is created.
func (a *Allocator) Reserve(ctx context.Context, r Request) (tenant.Choice, error) {
	var choice tenant.Choice
	err := a.submit(ctx, func(configs []*cachedConfig) error {
		for _, h := range configs {
			if slot, ok := h.reservations.SlotOf(r.Owner.Token); ok { // stored by a write whose response was lost
				choice = tenant.Choice{Config: h.config(), Slot: slot, NetworkID: h.model.NetworkIDs[r.Network.Type]}
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

// checkBudget checks the namespace's budget against the reservations in all TenantConfigs, including
// excluded ones.
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

// Release releases the slots of tokens. It ignores tokens without a reservation.
func (a *Allocator) Release(ctx context.Context, tokens ...string) error {
	return a.submit(ctx, func(configs []*cachedConfig) error {
		for _, h := range configs {
			for _, token := range tokens {
				if h.reservations.Remove(token) {
					h.changed = true
				}
			}
		}
		return nil
	})
}

// List returns all reservations.
func (a *Allocator) List(ctx context.Context) ([]tenant.Reservation, error) {
	var all []tenant.Reservation
	err := a.submit(ctx, func(configs []*cachedConfig) error {
		all = nil
		for _, h := range configs {
			for r := range h.reservations.All() {
				all = append(all, r)
			}
		}
		return nil
	})
	if err != nil { // the decision may still be running
		return nil, err
	}
	return all, nil
}

// CheckConfigs calls f with the TenantConfigs, except for excluded ones, and returns its error. f is
// called from another goroutine. Before its error is returned, it is called again with fresh objects.
func (a *Allocator) CheckConfigs(ctx context.Context, f func([]tenant.Config) error) error {
	return a.submit(ctx, func(configs []*cachedConfig) error { return f(usableConfigs(configs)) })
}

// errNoNetworkID makes the Allocator read the TenantConfigs again before it reports that none has a
// NetworkID.
var errNoNetworkID = errors.New("no TenantConfig has a NetworkID")

// NetworkID returns the networkIds entry for a type in a namespace, or "". With required, it returns ""
// only if the TenantConfigs that it has just read have none. The error is a *network.InvalidError if two
// TenantConfigs differ.
func (a *Allocator) NetworkID(ctx context.Context, w tenant.NetworkRequest, required bool) (string, error) {
	var id string
	err := a.submit(ctx, func(configs []*cachedConfig) error {
		var err error
		if id, err = tenant.NetworkID(w, usableConfigs(configs)); err == nil && id == "" && required {
			return errNoNetworkID
		}
		return err
	})
	switch {
	case errors.Is(err, errNoNetworkID):
		return "", nil
	case err != nil: // the decision may still be running
		return "", err
	}
	return id, nil
}

// AdoptionClaim is the assignment that a network claims to have. A network is a tenant's object, so that
// its claim is accepted only if a netadmin has confirmed it.
type AdoptionClaim struct {
	tenant.Reservation

	// NamespaceLabels are those of the network's namespace.
	NamespaceLabels map[string]string
}

// ErrAdoptionUnconfirmed means that no netadmin has confirmed the claim of a network.
var ErrAdoptionUnconfirmed = errors.New("no TenantConfig confirms it")

// errClaimsRejected makes the Allocator read the TenantConfigs again before it rejects a claim.
var errClaimsRejected = errors.New("claims were refused")

// Adopt reserves the slots that networks claim to have, each if a TenantConfig applies to the namespace,
// offers the slot and has the annotation danm.io/take-over, because a netadmin has restored it without
// its status. It returns the errors of the rejected claims by token: ErrAdoptionUnconfirmed, or
// tenant.ErrTaken if another network has the slot. The error is like that of Release.
func (a *Allocator) Adopt(ctx context.Context, claims []AdoptionClaim) (map[string]error, error) {
	refused := map[string]error{}
	err := a.submit(ctx, func(configs []*cachedConfig) error {
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
		slot, ok := h.reservations.SlotOf(c.Owner.Token)
		switch {
		case ok && slot == c.Slot:
			return nil // another replica has adopted it
		case ok:
			return fmt.Errorf("adopt %s for %s: its token has %s: %w", c.Slot, c.Owner, slot, ErrAdoptionUnconfirmed)
		}
	}
	for _, h := range configs {
		if h.permitsAdoption(c) {
			return addReservation(configs, h.model.Name, c.Reservation)
		}
	}
	return fmt.Errorf("adopt %s for %s: %w: it must apply to namespace %s, offer %s and have the annotation %s: %q",
		c.Slot, c.Owner, ErrAdoptionUnconfirmed, c.Owner.Namespace, c.Slot, v1.TakeOverAnnotation, takeOverValue)
}

// takeOverValue is the annotation's value.
const takeOverValue = "true"

func (h *cachedConfig) permitsAdoption(c AdoptionClaim) bool {
	return h.object.Annotations[v1.TakeOverAnnotation] == takeOverValue && h.exclusion == nil &&
		h.model.AppliesTo(c.NamespaceLabels) && tenant.ContainsSlot(h.model, c.Slot)
}

// submit waits until a decision is made and stored. It may be made several times.
func (a *Allocator) submit(ctx context.Context, decide decision) error {
	r := a.queue.Add(decide)
	switch {
	case a.queue.Wait(ctx, r):
		return r.Err()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: the program is shutting down", ErrUnavailable)
}

// commit makes all pending decisions, writes, and answers the requests. After an error it has answered
// none, and the decisions are dropped.
func (a *Allocator) commit(ctx context.Context) error {
	return a.commitBatch(ctx, a.queue.Pending())
}

func (a *Allocator) commitBatch(ctx context.Context, requests []*groupcommit.Request[decision]) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh := a.stale || time.Since(a.readAt) > maxCacheAge
	if fresh {
		if err := a.refresh(asking); err != nil {
			a.stale = true
			return err
		}
	}
	answers := make([]error, len(requests))
	for i, r := range requests {
		answers[i] = r.Value(a.configs)
		if answers[i] != nil && !fresh {
			a.stale = true // reject only with fresh objects
			return a.commitBatch(ctx, requests)
		}
	}
	for _, h := range a.configs {
		if !h.changed {
			continue
		}
		if err := a.updateStatus(asking, h); err != nil {
			a.stale = true
			return err
		}
	}
	for i, r := range requests {
		r.Answer(answers[i])
	}
	return nil
}

// maxCacheAge is how long the TenantConfigs may be used without a new read. A write with outdated ones
// has a conflict; the limit is for new TenantConfigs.
const maxCacheAge = 10 * time.Second

// refresh reads all TenantConfigs. It excludes an unusable one, which must not block reservations in
// others.
func (a *Allocator) refresh(ctx context.Context) error {
	objects, err := a.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	a.configs = a.configs[:0]
	var accepted []*network.TenantConfig
	why := map[string]error{}
	slices.SortStableFunc(objects, byAge)
	for _, o := range objects {
		if o.DeletionTimestamp != nil {
			continue
		}
		model, err := network.FromTenantConfig(o)
		if err != nil { // created before a validation rule
			why[o.Name] = err
			continue
		}
		overlap := findOverlap(model, accepted)
		if overlap == nil {
			accepted = append(accepted, model)
		} else {
			why[o.Name] = overlap
		}
		reservations, err := tenant.ParseReservations(o.Status.Reservations)
		if err != nil {
			why[o.Name] = fmt.Errorf("read status.reservations: %w: remove the page from the status, and have its networks adopted with the annotation %s: %q",
				err, v1.TakeOverAnnotation, takeOverValue)
			continue
		}
		a.configs = append(a.configs, &cachedConfig{object: o, model: model, reservations: reservations, exclusion: overlap})
	}
	a.reportExcluded(why)
	a.readAt, a.stale = time.Now(), false
	return nil
}

// byAge sorts older objects first, as admission does.
func byAge(a, b *v1.TenantConfig) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// findOverlap returns the error of a TenantConfig that overlaps with an older one. Admission rejects it,
// except for two that are created at the same time.
func findOverlap(t *network.TenantConfig, older []*network.TenantConfig) error {
	for _, o := range older {
		if err := tenant.CheckOverlap(t, o); err != nil {
			return err
		}
	}
	return nil
}

// reportExcluded calls onExcluded for each excluded TenantConfig whose reason is new.
func (a *Allocator) reportExcluded(why map[string]error) {
	reasons := make(map[string]string, len(why))
	for name, err := range why {
		reasons[name] = err.Error()
		if a.onExcluded != nil && a.reported[name] != reasons[name] {
			a.onExcluded(name, err)
		}
	}
	a.reported = reasons
}

// updateStatus stores the decisions on a TenantConfig.
func (a *Allocator) updateStatus(ctx context.Context, h *cachedConfig) error {
	next := h.object.DeepCopy()
	next.Status.Reservations = h.reservations.Encode()
	written, err := a.store.Update(ctx, next)
	if err != nil {
		return fmt.Errorf("update status of TenantConfig %s: %w", h.object.Name, err)
	}
	h.object, h.changed = written, false
	return nil
}

// cachedConfig is a TenantConfig as last read or written, with the decisions since then.
type cachedConfig struct {
	object       *v1.TenantConfig
	model        *network.TenantConfig
	reservations *tenant.Reservations
	changed      bool
	// exclusion is why it gets no new reservations; existing ones stay.
	exclusion error
}

func (h *cachedConfig) config() tenant.Config {
	return tenant.Config{TenantConfig: h.model, Reservations: h.reservations}
}

// usableConfigs returns the TenantConfigs that are not excluded, for package tenant.
func usableConfigs(configs []*cachedConfig) []tenant.Config {
	list := make([]tenant.Config, 0, len(configs))
	for _, h := range configs {
		if h.exclusion == nil {
			list = append(list, h.config())
		}
	}
	return list
}

// addReservation reserves a slot of the TenantConfig of that name.
func addReservation(configs []*cachedConfig, name string, r tenant.Reservation) error {
	for _, h := range configs {
		if h.model.Name != name {
			continue
		}
		before := h.reservations.Len()
		if err := h.reservations.Add(r); err != nil {
			return err
		}
		h.changed = h.changed || h.reservations.Len() != before
	}
	return nil
}
