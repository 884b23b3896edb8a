// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// StewardConfig is what a Steward needs to know; the zero value will do.
type StewardConfig struct {
	// Reserved, Timeout, Backoff, Report and Rand are those of Config.
	Reserved         func(*network.Network) []netip.Addr
	Timeout, Backoff time.Duration
	Report           func(error)
	Rand             func() float64
}

// Steward looks after the addresses of a cluster: it frees what nobody covers, and
// what nodes cover that are gone. It has no entry of its own and claims nothing.
type Steward struct {
	store Store
	cfg   Config
	// versions are the newest that were seen: a write on an older object would hide
	// from the nodes that it is older.
	versions versions
}

// NewSteward returns a Steward. Any number of them may be at work, beside the nodes.
func NewSteward(store Store, cfg StewardConfig) *Steward {
	c := Config{Reserved: cfg.Reserved, Timeout: cfg.Timeout, Backoff: cfg.Backoff, Report: cfg.Report, Rand: cfg.Rand}
	return &Steward{store: store, cfg: c.withDefaults()}
}

// Look says that the metadata of a network is at that version, as a watch tells.
func (s *Steward) Look(key Key, resourceVersion string) { s.versions.saw(key, resourceVersion) }

// Gone says that the watch knows a network no more.
func (s *Steward) Gone(key Key) { s.versions.forget(key) }

// Drift is by how much a bitmap was wrong.
type Drift struct {
	// Freed bits were set, and nobody covered them; Marked bits were covered, and
	// not set.
	Freed, Marked int64
}

// Audit frees the bits that neither an entry nor a DanmEp covers; with rebuild it
// makes the bitmaps anew from entries and DanmEps, whatever they say. Claims that
// come meanwhile make it begin afresh. ErrUnknownState says that an entry cannot be
// read; a network that is gone, or another of that name, is ErrNotFound.
func (s *Steward) Audit(ctx context.Context, key Key, rebuild bool) (Drift, error) {
	var drift Drift
	err := s.change(ctx, "audit", key, func(p *planner) error {
		drift = Drift{}
		if rebuild {
			return p.rebuild(&drift)
		}
		p.sweep()
		drift.Freed = p.collected
		return p.collectErr
	})
	return drift, err
}

// Evict takes the entries of nodes that are gone out of a network, each if it has
// that Node UID, and frees what they alone covered. To say that a node is gone says
// that its machine is off: its Pods' addresses are covered by their DanmEps as long as
// those exist, and no longer.
func (s *Steward) Evict(ctx context.Context, key Key, gone map[string]string) (freed int64, err error) {
	err = s.change(ctx, "evict nodes from", key, func(p *planner) error {
		for node, uid := range gone {
			if h, ok := p.held[node]; ok && h.UID == uid {
				delete(p.held, node)
			}
		}
		p.sweep()
		freed = p.collected
		return p.collectErr
	})
	return freed, err
}

// Recover ends a network's recovery when each of the nodes has reported or is to be
// left out, and returns who is awaited. Without a recovery nobody is.
func (s *Steward) Recover(ctx context.Context, key Key, nodes, skip []string) (awaited []string, err error) {
	err = s.change(ctx, "recover", key, func(p *planner) error {
		awaited = nil
		rec := p.next.IPAM.Recovering
		if rec == nil {
			return nil
		}
		for _, n := range nodes {
			if !slices.Contains(rec.Done, n) && !slices.Contains(skip, n) {
				awaited = append(awaited, n)
			}
		}
		if len(awaited) == 0 {
			p.next.IPAM.Recovering = nil
		}
		return nil
	})
	return awaited, err
}

// change reads an object with quorum, then lists its DanmEps, and writes what f makes
// of it with the resourceVersion of that read; after a conflict all of it afresh.
func (s *Steward) change(ctx context.Context, verb string, key Key, f func(*planner) error) error {
	a := &Allocator{cfg: s.cfg, ctx: ctx}
	for try := 0; ; try++ {
		begin := time.Now()
		err := s.attempt(ctx, a, key, f)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrConflict):
			return fmt.Errorf("%s network %v: %w", verb, key.Ref, err)
		}
		a.pause(max(s.cfg.Backoff, time.Since(begin)), try)
		if ctx.Err() != nil {
			return fmt.Errorf("%s network %v: %w: %w", verb, key.Ref, ErrTryAgain, context.Cause(ctx))
		}
	}
}

func (s *Steward) attempt(ctx context.Context, a *Allocator, key Key, f func(*planner) error) error {
	obj, err := ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Get(ctx, key.Ref) })
	if err != nil {
		return err
	}
	if obj.UID != key.UID {
		return fmt.Errorf("%w: it was deleted and made again", ErrNotFound)
	}
	if obj.IPAM == nil {
		return nil // its first user will rebuild it
	}
	endpoints, err := ask(ctx, a, func(ctx context.Context) ([]Endpoint, error) {
		return s.store.Endpoints(ctx, key.Ref)
	})
	if err != nil {
		return fmt.Errorf("list DanmEps: %w", err)
	}
	older := s.versions.older(key, obj.ResourceVersion)
	if older {
		f = (*planner).startRecovery
	}
	next, changed, err := s.plan(obj, endpoints, f)
	if err == nil && changed {
		obj, err = ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Update(ctx, next) })
	}
	if err != nil {
		return err
	}
	s.versions.restart(key, obj.ResourceVersion)
	if older {
		return fmt.Errorf("%w: it is older than it was, and recovers", ErrTryAgain)
	}
	return nil
}

// startRecovery starts the recovery of an object that is older than it was.
func (p *planner) startRecovery() error {
	p.next.IPAM.Recovering = &v1.Recovering{Since: metav1.NewMicroTime(time.Now())}
	return nil
}

// plan is what f makes of an object.
func (s *Steward) plan(obj *Object, endpoints []Endpoint, f func(*planner) error) (*Object, bool, error) {
	p := plannerOf(&s.cfg, obj, endpoints)
	p.read()
	if err := p.open(); err != nil {
		return nil, false, err
	}
	if err := f(p); err != nil {
		return nil, false, err
	}
	p.finish()
	return p.next, p.changed, nil
}

// plannerOf returns a planner for an object that no node plans for.
func plannerOf(cfg *Config, obj *Object, endpoints []Endpoint) *planner {
	o := owners{}
	if !obj.others() {
		o = ownersOf(endpoints, obj.UID, "")
	}
	book := newLedger()
	book.verified = true
	return &planner{cfg: cfg, obj: obj, owners: &o, book: &book}
}

// Uncovered counts the bits of an object that neither its entries nor one of the
// endpoints covers. From caches it is a hint whether Audit has work.
func Uncovered(o *Object, endpoints []Endpoint) (int64, error) {
	if o.IPAM == nil {
		return 0, nil
	}
	cfg := Config{}.withDefaults()
	p := plannerOf(&cfg, o, endpoints)
	p.read()
	if err := p.open(); err != nil {
		return 0, err
	}
	p.sweep()
	return p.collected, p.collectErr
}

// rebuild makes the bitmaps anew and counts what was wrong.
func (p *planner) rebuild(drift *Drift) error {
	for _, f := range [...]*family{&p.v4, &p.v6} {
		if f.pool == nil || f.former {
			continue
		}
		old := f.pool
		cursor := old.Cursor()
		if err := f.reset(); err != nil {
			return err
		}
		if err := p.fill(f.pool); err != nil {
			return err
		}
		f.pool.Seek(cursor)
		for a := range old.All() {
			if !f.pool.Has(a) {
				drift.Freed++
			}
		}
		for a := range f.pool.All() {
			if !old.Has(a) {
				drift.Marked++
			}
		}
	}
	return nil
}
