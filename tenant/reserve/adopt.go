// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/tenant"
)

// ErrUnconfirmed says that no netadmin asks for what a network says to be believed.
var ErrUnconfirmed = errors.New("no TenantConfig confirms it")

// errRefused makes the desk read afresh before a claim is refused.
var errRefused = errors.New("claims were refused")

// Claim is what a network says that it was assigned. It is a tenant's object: what it
// says is believed only where a netadmin asks for it.
type Claim struct {
	tenant.Reservation

	// NamespaceLabels are those of the network's namespace.
	NamespaceLabels map[string]string
}

// Adopt reserves what networks say that they were assigned, each where a TenantConfig
// is for the namespace, offers the place and has the annotation danm.io/take-over: a
// netadmin restored it without its status. It returns by token why others are not
// believed: ErrUnconfirmed, or tenant.ErrTaken when another network has the place. The
// error is that of Release.
func (d *Desk) Adopt(ctx context.Context, claims []Claim) (map[string]error, error) {
	refused := map[string]error{}
	err := d.do(ctx, func(configs []*held) error {
		clear(refused)
		for _, c := range claims {
			if err := adopt(configs, c); err != nil {
				refused[c.Owner.Token] = err
			}
		}
		if len(refused) > 0 {
			return errRefused
		}
		return nil
	})
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, errRefused):
		return refused, nil
	}
	return nil, err
}

func adopt(configs []*held, c Claim) error {
	for _, h := range configs {
		place, ok := h.book.Of(c.Owner.Token)
		switch {
		case ok && place == c.Place:
			return nil // another replica was first
		case ok:
			return fmt.Errorf("adopt %s for %s: its token has %s: %w", c.Place, c.Owner, place, ErrUnconfirmed)
		}
	}
	for _, h := range configs {
		if h.takesOver(c) {
			return add(configs, h.model.Name, c.Reservation)
		}
	}
	return fmt.Errorf("adopt %s for %s: %w: want one that is for namespace %s, offers %s and has the annotation %s: %q",
		c.Place, c.Owner, ErrUnconfirmed, c.Owner.Namespace, c.Place, v1.TakeOverAnnotation, takeOver)
}

// takeOver is the annotation's value.
const takeOver = "true"

func (h *held) takesOver(c Claim) bool {
	return h.object.Annotations[v1.TakeOverAnnotation] == takeOver && h.closed == nil &&
		h.model.Serves(c.NamespaceLabels) && tenant.Offers(h.model, c.Place)
}
