// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// fresh is how long the TenantConfigs may be used without being read again. A write
// shows by a conflict that they are old; this is for one that was added.
const fresh = 10 * time.Second

// held is a TenantConfig as it was last read or written, with what was decided since.
type held struct {
	object  *v1.TenantConfig
	model   *network.Tenancy
	book    *tenant.Book
	changed bool
}

func (h *held) config() tenant.Config { return tenant.Config{Tenancy: h.model, Book: h.book} }

// refresh reads all TenantConfigs. One that is wrong is nobody's: its rules are the
// API server's, so it is older than a rule.
func (d *Desk) refresh(ctx context.Context) error {
	objects, err := d.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	d.configs = d.configs[:0]
	for _, o := range objects {
		model, err := network.FromTenantConfig(o)
		if err != nil || o.DeletionTimestamp != nil {
			continue
		}
		book, err := tenant.ParseBook(o.Status.Reservations)
		if err != nil {
			return fmt.Errorf("read status.reservations of TenantConfig %s: %w", o.Name, err)
		}
		d.configs = append(d.configs, &held{object: o, model: model, book: book})
	}
	d.read, d.stale = time.Now(), false
	return nil
}

// write stores what was decided on a TenantConfig.
func (d *Desk) write(ctx context.Context, h *held) error {
	next := h.object.DeepCopy()
	next.Status.Reservations = h.book.Encode()
	written, err := d.store.Update(ctx, next)
	if err != nil {
		return fmt.Errorf("update status of TenantConfig %s: %w", h.object.Name, err)
	}
	h.object, h.changed = written, false
	return nil
}
