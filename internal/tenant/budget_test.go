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

// A namespace's budget counts its reservations in all TenantConfigs, and none of other namespaces.
func TestCheckBudget(t *testing.T) {
	t.Parallel()
	vlan, nic := network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: 99}, network.TenantSlot{Kind: network.SlotNIC, Device: "ens6", ID: 99}
	cases := map[string]struct {
		reason              string
		ids, nics, pending  int
		other               int
		budgets, alsoServed network.Budgets
		slot                network.TenantSlot
		wantErr             string
		is                  error
	}{
		"Room":     {reason: "The budget has room for one more network.", ids: 3, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, slot: vlan},
		"Others":   {reason: "Reservations of other namespaces do not count.", other: 9, budgets: network.Budgets{Networks: 1, IDs: 1, IDsWithoutNetwork: 1}, slot: vlan},
		"IDs":      {reason: "All IDs of the budget are in use.", ids: 4, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, slot: vlan, wantErr: "at most 4 VLANs and VXLANs (budgets.ids of its TenantConfig), and has 4"},
		"NoID":     {reason: "A network without an ID does not count for the IDs.", ids: 4, budgets: network.Budgets{Networks: 9, IDs: 4, IDsWithoutNetwork: 2}, slot: nic},
		"Networks": {reason: "Networks with and without IDs count.", ids: 2, nics: 2, budgets: network.Budgets{Networks: 4, IDs: 4, IDsWithoutNetwork: 2}, slot: nic, wantErr: "at most 4 TenantNetworks (budgets.networks of its TenantConfig), and has 4"},
		"Smallest": {reason: "The smallest budget of two TenantConfigs counts.", ids: 2, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, alsoServed: network.Budgets{Networks: 9, IDs: 2, IDsWithoutNetwork: 2}, slot: vlan, wantErr: "at most 2 VLANs"},
		"Pending":  {reason: "Reservations without a network have no object that a tenant can see or delete.", ids: 2, pending: 2, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, slot: vlan, wantErr: "namespace red has 2 of them, and may have 2", is: tenant.ErrReservationsPending},
		"OneMore":  {reason: "One creation may be in progress.", ids: 1, pending: 1, budgets: network.Budgets{Networks: 9, IDs: 9, IDsWithoutNetwork: 2}, slot: vlan},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second, alive, id := tenant.NewReservations(), tenant.NewReservations(), map[string]bool{}, 0
			add := func(count int, kind, namespace string, living bool) {
				for range count {
					id++
					owner := tenant.Owner{Namespace: namespace, Name: "n", Token: fmt.Sprintf("%016x", id)}
					into := first
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
			configs := []tenant.Config{{TenantConfig: &network.TenantConfig{Name: "a", Budgets: tc.budgets}, Reservations: first}, {TenantConfig: &network.TenantConfig{Name: "b", Budgets: tc.alsoServed}, Reservations: second}}
			err := tenant.CheckBudget(tenant.NetworkRequest{Namespace: "red"}, tc.slot, configs, alive)
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) || errors.Is(err, tenant.ErrReservationsPending) != (tc.is != nil) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wantErr)
			}
		})
	}
}
