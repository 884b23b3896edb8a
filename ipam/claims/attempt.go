// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// attempt reads the object, plans for all who wait, writes, and answers them.
// ErrConflict means that nothing was written; any other error leaves that open,
// and the next attempt finds out.
func (d *desk) attempt(ctx context.Context) error {
	obj, err := d.read(ctx)
	if err != nil || obj == nil {
		return err
	}
	p, work, err := d.plan(ctx, obj)
	if err != nil {
		return err
	}
	current, err := d.write(ctx, obj, p)
	if err != nil {
		return d.failed(p, err)
	}
	d.apply(p, work)
	if current.Deleting && current.Protected && len(p.next.IPAM.Held) == 0 {
		return d.unprotect(ctx, current)
	}
	return nil
}

// write writes a plan, if there is something to write. What the journal has of the
// entry's seq is never more than what the object has: it forgets before the entry
// goes, and learns after the entry has come.
func (d *desk) write(ctx context.Context, obj *Object, p *plan) (*Object, error) {
	if !p.changed {
		d.note(p, obj)
		return obj, d.remember(p.entry)
	}
	if !p.entry.present {
		if err := d.remember(p.entry); err != nil {
			return nil, err
		}
	}
	written, err := ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
		return d.a.store.Update(ctx, p.next)
	})
	if err != nil {
		return nil, err
	}
	d.note(p, written)
	return written, d.remember(p.entry)
}

// note takes the object's version as the newest. That of a recovery begins anew, once
// the recovery is written.
func (d *desk) note(p *plan, obj *Object) {
	if p.reassert {
		d.a.versions.forget(d.key)
	}
	d.a.versions.saw(d.key, obj.ResourceVersion)
}

// remember journals the seq of an entry, or that there is none.
func (d *desk) remember(e entry) error {
	seq := e.seq
	if !e.present {
		seq = 0
	}
	d.mu.Lock()
	known := d.book.remembered
	d.mu.Unlock()
	if seq == known {
		return nil
	}
	if err := d.a.cfg.Remember(d.key, seq); err != nil {
		return fmt.Errorf("journal seq %d of the entry: %w", seq, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.remembered = seq
	return nil
}

// read gets the object and, before the first claim, its finalizer. It returns
// nil when the object is gone and everybody was told.
func (d *desk) read(ctx context.Context) (*Object, error) {
	obj, err := ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
		return d.a.store.Get(ctx, d.key.Ref)
	})
	switch {
	case errors.Is(err, ErrNotFound):
		d.vanish(err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read network %v: %w", d.key.Ref, err)
	case obj.UID != d.key.UID:
		d.vanish(fmt.Errorf("%w: the network was deleted and made again", ErrTryAgain))
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looked, d.look = time.Now(), false
	if d.lost != obj.ResourceVersion {
		d.lost = "" // a write on another version is refused for good
	}
	if len(d.claims) == 0 || obj.answers() || d.doubts(obj) {
		return obj, nil
	}
	return d.protect(ctx, obj)
}

// found writes an empty status.ipam into a network that nobody has used yet. Only
// after that comes the finalizer: a network that has its finalizer and no status.ipam
// has lost it, and with it the addresses that are in use.
func (d *desk) found(ctx context.Context, obj *Object) (*Object, error) {
	next := *obj
	next.IPAM = &v1.IPAMStatus{}
	obj, err := ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
		return d.a.store.Update(ctx, &next)
	})
	if err != nil {
		return nil, fmt.Errorf("write first status of network %v: %w", d.key.Ref, err)
	}
	return obj, nil
}

// doubts reports whether an object without finalizer or bitmap cannot be a new one: then
// the plan starts a recovery, before another write hides that the object is older.
func (d *desk) doubts(obj *Object) bool {
	return d.a.versions.older(d.key, obj.ResourceVersion) ||
		obj.IPAM == nil && (d.book.remembered > 0 || d.book.missing)
}

// answers reports whether claims can be granted or refused without the
// finalizer being set first.
func (o *Object) answers() bool { return o.Deleting || o.Invalid != nil || o.Protected }

// protect sets the finalizer, with d.mu locked but for the request.
func (d *desk) protect(ctx context.Context, obj *Object) (*Object, error) {
	d.mu.Unlock()
	defer d.mu.Lock()
	var err error
	if obj.IPAM == nil {
		if obj, err = d.found(ctx, obj); err != nil {
			return nil, err
		}
	}
	obj, err = ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
		return d.a.store.Protect(ctx, obj, true)
	})
	if err != nil {
		return nil, fmt.Errorf("put finalizer on network %v: %w", d.key.Ref, err)
	}
	return obj, nil
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
	o := owners{live: live}
	if !obj.others() {
		o = ownersOf(endpoints, obj.UID, d.a.cfg.Node)
		o.live = live
	}
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
	p.older = d.a.versions.older(d.key, obj.ResourceVersion)
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
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		d.lost = p.next.ResourceVersion
		d.book.seq = p.entry.seq
	}
	return fmt.Errorf("write status of network %v: %w", d.key.Ref, err)
}

// unprotect takes the finalizer off a network in deletion whose entries are
// gone, if then no DanmEp is left either.
func (d *desk) unprotect(ctx context.Context, obj *Object) error {
	endpoints, err := ask(ctx, d.a, func(ctx context.Context) ([]Endpoint, error) {
		return d.a.store.Endpoints(ctx, obj.Ref)
	})
	for _, e := range endpoints {
		if e.of(obj.UID) {
			return nil
		}
	}
	if err == nil {
		_, err = ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
			return d.a.store.Protect(ctx, obj, false)
		})
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = true
	return fmt.Errorf("take finalizer off network %v: %w", obj.Ref, err)
}
