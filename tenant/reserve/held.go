// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// held is a TenantConfig as it was last read or written, with what was decided since.
type held struct {
	object  *v1.TenantConfig
	model   *network.Tenancy
	book    *tenant.Book
	changed bool
	// closed says why nothing more is given of it; what is reserved stays.
	closed error
}

func (h *held) config() tenant.Config { return tenant.Config{Tenancy: h.model, Book: h.book} }

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
