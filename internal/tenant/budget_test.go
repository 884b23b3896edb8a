// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// A namespace's budget counts what it has of all TenantConfigs, and nobody else's.
func TestCheckBudget(t *testing.T) {
	t.Parallel()
	vlan, nic := network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 99}, network.TenantSlot{Kind: network.SlotNIC, Device: "ens6", ID: 99}
	cases := map[string]struct {
		reason              string
		ids, nics, pending  int
		other               int
		budgets, alsoServed network.Budgets
		place               network.TenantSlot
		says                string
		is                  error
	}{
		"Room":     {reason: "One more.", ids: 3, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, place: vlan},
		"Others":   {reason: "Another namespace's do not count.", other: 9, budgets: network.Budgets{Networks: 1, IDs: 1, IDsWithoutNetwork: 1}, place: vlan},
		"IDs":      {reason: "All of them.", ids: 4, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, place: vlan, says: "may have 4 VLANs and VXLANs (budgets.ids of its TenantConfig), and has 4"},
		"NoID":     {reason: "A network without an ID takes none.", ids: 4, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, place: nic},
		"Networks": {reason: "With and without IDs.", ids: 2, nics: 2, budgets: network.Budgets{Networks: 4, IDs: 4, IDsWithoutNetwork: 2}, place: nic, says: "may have 4 TenantNetworks (budgets.networks of its TenantConfig), and has 4"},
		"Smallest": {reason: "Of two TenantConfigs.", ids: 2, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, alsoServed: network.Budgets{Networks: 9, IDs: 2, IDsWithoutNetwork: 2}, place: vlan, says: "may have 2 VLANs"},
		"Pending":  {reason: "They have no object to see or delete.", ids: 2, pending: 2, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, place: vlan, says: "namespace red has 2 of them, and may have 2", is: tenant.ErrReservationsPending},
		"OneMore":  {reason: "One is under way.", ids: 1, pending: 1, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, place: vlan},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book, second, alive, id := tenant.NewReservations(), tenant.NewReservations(), map[string]bool{}, 0
			add := func(count int, kind, namespace string, living bool) {
				for range count {
					id++
					owner := tenant.Owner{Namespace: namespace, Name: "n", Token: fmt.Sprintf("%016x", id)}
					into := book
					if id%2 == 0 {
						into = second
					}
					if err := into.Add(tenant.Reservation{Slot: network.TenantSlot{Kind: kind, Device: "ens4", ID: id}, Owner: owner}); err != nil {
						t.Fatal(err)
					}
					if living {
						alive[owner.Token] = true
					}
				}
			}
			add(tc.ids, network.SlotVLAN, "red", true)
			add(tc.nics, network.SlotNIC, "red", true)
			add(tc.pending, network.SlotVLAN, "red", false)
			add(tc.other, network.SlotVLAN, "blue", false)
			if tc.alsoServed == (network.Budgets{}) {
				tc.alsoServed = tc.budgets
			}
			configs := []tenant.Config{{TenantConfig: &network.TenantConfig{Name: "a", Budgets: tc.budgets}, Reservations: book}, {TenantConfig: &network.TenantConfig{Name: "b", Budgets: tc.alsoServed}, Reservations: second}}
			err := tenant.CheckBudget(tenant.NetworkRequest{Namespace: "red"}, tc.place, configs, alive)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) || errors.Is(err, tenant.ErrReservationsPending) != (tc.is != nil) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
		})
	}
}
