// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// read gets the object and, before the first claim, its finalizer. It returns
// nil when the object is gone and everybody was told.
func (d *desk) read(ctx context.Context) (*Object, error) {
	newest := d.a.versions.newest(d.key)
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
	d.older, d.newest = older(obj.ResourceVersion, newest), newest
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
	return d.older ||
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
