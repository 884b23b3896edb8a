// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

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
		case errors.Is(err, errLookAgain):
			continue
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
	newest := s.versions.newest(key)
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
	back := older(obj.ResourceVersion, newest)
	if back {
		f = (*planner).startRecovery
	}
	next, changed, err := s.plan(obj, endpoints, f)
	if err == nil && changed {
		obj, err = ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Update(ctx, next) })
	}
	if err != nil {
		return err
	}
	s.versions.restart(key, obj.ResourceVersion, newest)
	if back {
		return fmt.Errorf("%w: it is older than it was, and recovers", ErrTryAgain)
	}
	return nil
}

// startRecovery starts the recovery of an object that is older than it was. It begins
// after any other one: that is how nodes tell them apart.
func (p *planner) startRecovery() error {
	now := time.Now().Truncate(time.Microsecond)
	if rec := p.next.IPAM.Recovering; rec != nil && !now.After(rec.StartTime.Time) {
		now = rec.StartTime.Add(time.Microsecond)
	}
	p.next.IPAM.Recovering = &v1.RecoveryStatus{StartTime: metav1.NewMicroTime(now)}
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
	return &planner{cfg: cfg, obj: obj, owners: &o, endpoints: endpoints, book: &book}
}
