// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// ErrReservationsPending means that a namespace has too many reservations without networks. It is
// temporary: their networks are stored, or the reservations are released after GracePeriod.
var ErrReservationsPending = errors.New("reservations wait for their networks")

// CheckBudget checks that a namespace may have one more network with a slot. Alive has the tokens of
// the networks that exist. All reservations count, with or without a network, because another replica
// may have admitted a network. The error is a *network.InvalidError that names the budget, or
// ErrReservationsPending.
func CheckBudget(w NetworkRequest, p network.TenantSlot, configs []Config, alive map[string]bool) error {
	mine := configsFor(configs, w.NamespaceLabels)
	if len(mine) == 0 {
		return noTenantConfigError(w)
	}
	least := mine[0].Budgets
	for _, c := range mine[1:] {
		least.Networks = min(least.Networks, c.Budgets.Networks)
		least.IDs = min(least.IDs, c.Budgets.IDs)
		least.IDsWithoutNetwork = min(least.IDsWithoutNetwork, c.Budgets.IDsWithoutNetwork)
	}
	var has network.Budgets
	for _, c := range configs {
		for r := range c.All() {
			if r.Owner.Namespace != w.Namespace {
				continue
			}
			has.Networks++
			if consumesID(r.Slot) {
				has.IDs++
			}
			if !alive[r.Owner.Token] {
				has.IDsWithoutNetwork++
			}
		}
	}
	switch {
	case has.Networks >= least.Networks:
		return overBudgetError(w, "networks", least.Networks, has.Networks, "TenantNetworks")
	case consumesID(p) && has.IDs >= least.IDs:
		return overBudgetError(w, "ids", least.IDs, has.IDs, "VLANs and VXLANs")
	case has.IDsWithoutNetwork >= least.IDsWithoutNetwork:
		return fmt.Errorf("%w: namespace %s has %d of them, and may have %d: other creations are in progress or have failed: try again in a minute",
			ErrReservationsPending, w.Namespace, has.IDsWithoutNetwork, least.IDsWithoutNetwork)
	}
	return nil
}

func consumesID(p network.TenantSlot) bool {
	return p.Kind == network.SlotVLAN || p.Kind == network.SlotVXLAN
}

func overBudgetError(w NetworkRequest, budget string, most, has int, what string) error {
	return invalidError(field.NewPath("metadata", "namespace"), w.Namespace,
		"must have at most %d %s (budgets.%s of its TenantConfig), and has %d: delete a network, or ask a netadmin for more", most, what, budget, has)
}
