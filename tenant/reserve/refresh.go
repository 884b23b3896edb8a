// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

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
