// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// attempt reads the object, plans for all who wait, writes, and answers them.
// ErrConflict means that nothing was written, unless the request met a copy of itself; any
// other error leaves that open. The next attempt finds out.
func (d *desk) attempt(ctx context.Context) error {
	obj, err := d.read(ctx)
	if err != nil || obj == nil {
		return err
	}
	p, work, err := d.plan(ctx, obj)
	if err != nil {
		return err
	}
	if err := d.write(ctx, obj, p); err != nil {
		return d.failed(p, err)
	}
	d.apply(p, work)
	return nil
}

// work is what was waiting when a plan was made.
type work struct {
	claims  []*claim
	waiters []*waiter
}

// plan plans for all who wait now. If the plan needs the DanmEps, they are
// listed and it is made again.
func (d *desk) plan(ctx context.Context, obj *Object) (*plan, work, error) {
	p, w, err := d.planWith(obj, nil)
	if !errors.Is(err, errNeedList) {
		return p, w, err
	}
	d.mu.Lock()
	asked := d.book.published()
	d.mu.Unlock()
	endpoints, err := ask(ctx, d.a, func(ctx context.Context) ([]Endpoint, error) {
		return d.a.store.Endpoints(ctx, obj.Ref)
	})
	if err != nil {
		return nil, w, fmt.Errorf("list DanmEps of %v: %w: %w", obj.Ref, ErrUnknownState, err)
	}
	live, err := d.a.cfg.Live(ctx)
	if err != nil {
		return nil, w, fmt.Errorf("find addresses on this node's interfaces: %w: %w", ErrUnknownState, err)
	}
	var o owners
	if !obj.others() {
		o = ownersOf(endpoints, obj.UID, d.a.cfg.Node)
	}
	o.live, o.asked = live, asked
	return d.planWith(obj, &o)
}

func (d *desk) planWith(obj *Object, o *owners) (*plan, work, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := work{waiters: d.waiters}
	if obj.answers() {
		w.claims = d.claims
	}
	p := planner{cfg: &d.a.cfg, obj: obj, owners: o, book: &d.book, claims: w.claims, now: time.Now(), desk: d}
	p.fence = d.lost != "" && d.lost == obj.ResourceVersion
	p.older = d.older
	p.blank = obj.IPAM == nil && obj.Protected && !obj.Deleting
	for _, x := range w.waiters {
		p.collect = p.collect || x.collect
		p.recheck = p.recheck || x.recheck
	}
	made, err := p.make()
	if err == nil {
		d.dirty = false
	}
	return made, w, err
}

// failed notes what an unsuccessful write leaves to be done.
func (d *desk) failed(p *plan, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = true
	if errors.Is(err, ErrConflict) {
		tried := p.entry.clone()
		d.book.tried = &tried
	}
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		d.lost = p.next.ResourceVersion
		d.book.seq, d.book.sure = p.entry.seq, false
	}
	return fmt.Errorf("write status of network %v: %w", d.key.Ref, err)
}
