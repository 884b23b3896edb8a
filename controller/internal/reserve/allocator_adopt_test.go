// SPDX-License-Identifier: Apache-2.0

package reserve_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

func place(kind, device string, id int) network.TenantSlot {
	return network.TenantSlot{Kind: kind, Device: device, ID: id}
}

// What a network says of itself is believed only where a netadmin asks for it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	const takeOver = "true"
	cases := map[string]struct {
		reason   string
		value    string // of the annotation
		selector map[string]string
		networks map[string]string
		labels   map[string]string
		place    network.TenantSlot
		want     error
	}{
		"Asked":        {reason: "Restored without its status.", value: takeOver, place: vlan(2)},
		"Served":       {reason: "For this namespace.", value: takeOver, selector: map[string]string{"a": "b"}, labels: map[string]string{"a": "b"}, place: vlan(2)},
		"Plugin":       {reason: "One of networkIds.", value: takeOver, networks: map[string]string{"flannel": "flan"}, place: place(network.SlotPlugin, "flannel", 1)},
		"Unasked":      {reason: "A forgery of a time without admission.", place: vlan(2), want: reserve.ErrAdoptionUnconfirmed},
		"OtherValue":   {reason: "Only true is yes.", value: "no", place: vlan(2), want: reserve.ErrAdoptionUnconfirmed},
		"NotServed":    {reason: "It is for other namespaces.", value: takeOver, selector: map[string]string{"a": "b"}, labels: map[string]string{"a": "c"}, place: vlan(2), want: reserve.ErrAdoptionUnconfirmed},
		"OtherDevice":  {reason: "Not offered.", value: takeOver, place: place(network.SlotVLAN, "eth0", 2), want: reserve.ErrAdoptionUnconfirmed},
		"OtherID":      {reason: "Not offered.", value: takeOver, place: vlan(9), want: reserve.ErrAdoptionUnconfirmed},
		"OtherPlugin":  {reason: "Root would execute it.", value: takeOver, networks: map[string]string{"flannel": "flan"}, place: place(network.SlotPlugin, "bridge", 1), want: reserve.ErrAdoptionUnconfirmed},
		"AnotherHasIt": {reason: "It stays the other's.", value: takeOver, place: vlan(1), want: tenant.ErrSlotTaken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore("1-3")
				d := reserve.New(t.Context(), s, nil)
				mustReserve(t, d, 0, 1)
				s.edit(func(c *v1.TenantConfig) {
					c.Annotations = map[string]string{v1.TakeOverAnnotation: tc.value}
					if tc.selector != nil {
						c.NamespaceSelector = &metav1.LabelSelector{MatchLabels: tc.selector}
					}
					c.NetworkIDs = map[string]v1.TenantNetworkID{}
					for key, id := range tc.networks {
						c.NetworkIDs[key] = v1.TenantNetworkID(id)
					}
				})
				time.Sleep(time.Minute) // so that it is read again
				claim := reserve.AdoptionClaim{Reservation: tenant.Reservation{Slot: tc.place, Owner: request(5).Owner}, NamespaceLabels: tc.labels}
				for range 2 { // safe to repeat
					refused, err := d.Adopt(t.Context(), []reserve.AdoptionClaim{claim})
					if got := refused[claim.Owner.Token]; err != nil || !errors.Is(got, tc.want) || (got == nil) != (tc.want == nil) {
						t.Fatalf("%s\nAdopt: got %v, %v, want %v", tc.reason, got, err, tc.want)
					}
				}
				want := map[string]network.TenantSlot{request(0).Owner.Token: vlan(1)}
				if tc.want == nil {
					want[claim.Owner.Token] = tc.place
				}
				if diff := cmp.Diff(want, s.reservations(t)); diff != "" {
					t.Errorf("%s\nstored: -want +got\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func vlan(id int) network.TenantSlot { return place(network.SlotVLAN, "ens4", id) }

// One forged claim keeps nobody from what is theirs, and a token has one place.
func TestAdoptMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore("1-9")
		s.object.Annotations = map[string]string{v1.TakeOverAnnotation: "true"}
		d := reserve.New(t.Context(), s, nil)
		mustReserve(t, d, 0, 1)
		claims := []reserve.AdoptionClaim{
			{Reservation: tenant.Reservation{Slot: vlan(4000), Owner: request(1).Owner}},
			{Reservation: tenant.Reservation{Slot: vlan(5), Owner: request(2).Owner}},
			{Reservation: tenant.Reservation{Slot: vlan(6), Owner: request(0).Owner}},
			{Reservation: tenant.Reservation{Slot: vlan(7), Owner: tenant.Owner{Namespace: "red", Name: "Bad", Token: request(3).Owner.Token}}},
		}
		refused, err := d.Adopt(t.Context(), claims)
		if err != nil || len(refused) != 3 || refused[request(2).Owner.Token] != nil {
			t.Errorf("got %v, %v, want all but the second refused", refused, err)
		}
		want := map[string]network.TenantSlot{request(0).Owner.Token: vlan(1), request(2).Owner.Token: vlan(5)}
		if diff := cmp.Diff(want, s.reservations(t)); diff != "" {
			t.Errorf("stored: -want +got\n%s", diff)
		}
	})
}

// What is left out is told once, and again when the reason is another.
func TestExcludedConfigsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore("1-9")
		var told []string
		d := reserve.New(t.Context(), s, func(config string, why error) { told = append(told, config+": "+why.Error()) })
		look := func(page string, want int) {
			t.Helper()
			s.edit(func(c *v1.TenantConfig) { c.Status.Reservations = map[string]string{"vlan/ens4/0": page} })
			for range 3 {
				time.Sleep(time.Minute)
				if _, err := d.List(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if len(told) != want {
				t.Errorf("page %q: told %q, want %d", page, told, want)
			}
		}
		look("1 red/net 0000000000000001", 0)
		look("1 red/Bad 0000000000000001", 1)
		look("garbage", 2)
		look("1 red/net 0000000000000001", 2)
		look("garbage", 3)
	})
}

// A network may be created just after the TenantConfig that has its NetworkID.
func TestRequiredNetworkIDReadsAgain(t *testing.T) {
	t.Parallel()
	s := newStore("1-9")
	d := reserve.New(t.Context(), s, nil)
	flannel := tenant.NetworkRequest{Namespace: "team-a", Type: "flannel"}
	if id, err := d.NetworkID(t.Context(), flannel, true); id != "" || err != nil {
		t.Errorf("without networkIds: got %q and %v, want none", id, err)
	}
	s.edit(func(c *v1.TenantConfig) { c.NetworkIDs = map[string]v1.TenantNetworkID{"flannel": "flan"} })
	if id, err := d.NetworkID(t.Context(), flannel, true); id != "flan" || err != nil {
		t.Errorf("with networkIds: got %q and %v, want flan", id, err)
	}
}

// Who no longer waits gets nothing of a plan that may still be at work.
func TestCancelledRequestGetsNoResult(t *testing.T) {
	t.Parallel()
	for range 50 {
		s := newStore("1-9")
		d := reserve.New(t.Context(), s, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		all, err := d.List(ctx)
		if err != nil && all != nil {
			t.Errorf("Reserved: got %v and %v", all, err)
		}
		id, err := d.NetworkID(ctx, request(1).Network, false)
		if err != nil && id != "" {
			t.Errorf("NetworkID: got %q and %v", id, err)
		}
		cancel()
	}
}
