// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

func owner(i int) tenant.Owner {
	return tenant.Owner{Namespace: "team-a", Name: fmt.Sprintf("net%d", i), Token: fmt.Sprintf("%016x", i)}
}

func vlan(id int) network.TenantSlot {
	return network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: id}
}

func reserve(tb testing.TB, b *tenant.Reservations, slots ...network.TenantSlot) {
	tb.Helper()
	for _, p := range slots {
		if err := b.Add(tenant.Reservation{Slot: p, Owner: owner(b.Len() + 1)}); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestReservationsText(t *testing.T) {
	t.Parallel()
	b := tenant.NewReservations()
	reserve(t, b, vlan(1000), vlan(1003), network.TenantSlot{Kind: network.SlotVXLAN, Device: "a.b/c", ID: 64},
		network.TenantSlot{Kind: network.SlotNIC, Device: "ens5", ID: 1})
	want := map[string]string{
		"vlan/ens4/15":  "1000 team-a/net1 0000000000000001, 1003 team-a/net2 0000000000000002",
		"vxlan/a.b/c/1": "64 team-a/net3 0000000000000003",
		"nic/ens5/0":    "1 team-a/net4 0000000000000004",
	}
	if diff := cmp.Diff(want, b.Encode()); diff != "" {
		t.Errorf("Encode: -want +got\n%s", diff)
	}
}

func TestParseReservationsRejects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, key, text, want string }{
		"Key":       {"the page number is missing", "vlan/ens4", "1 a/b 0000000000000001", "kind/device/number"},
		"Kind":      {"the kind does not exist", "gre/ens4/0", "1 a/b 0000000000000001", "gre"},
		"Negative":  {"a page number is not negative", "vlan/ens4/-1", "1 a/b 0000000000000001", "number"},
		"Elsewhere": {"the ID is of another page", "vlan/ens4/0", "64 a/b 0000000000000001", "must be in page"},
		"Order":     {"the IDs must be in order", "vlan/ens4/0", "2 a/b 0000000000000001, 1 a/b 0000000000000002", "order"},
		"Twice":     {"an ID has one owner", "vlan/ens4/0", "1 a/b 0000000000000001, 1 a/b 0000000000000002", "order"},
		"TwoPlaces": {"an owner has one ID", "vlan/ens4/0", "1 a/b 0000000000000001, 2 a/b 0000000000000001", "vlan/ens4/1 and vlan/ens4/2"},
		"Owner":     {"the namespace is missing", "vlan/ens4/0", "1 b 0000000000000001", "namespace/name"},
		"Token":     {"the token is missing", "vlan/ens4/0", "1 a/b", "16 hexadecimal digits"},
		"HighID":    {"the VLAN does not exist", "vlan/ens4/63", "4095 a/b 0000000000000001", "4094"},
		"Empty":     {"an empty page must be omitted", "vlan/ens4/0", "", "ID"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tenant.ParseReservations(map[string]string{tc.key: tc.text})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: ParseReservations: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// Reservations behave as a map from slots to owners, and their encoding is complete.
func TestReservationsAreAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, want := tenant.NewReservations(), map[network.TenantSlot]tenant.Owner{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := network.TenantSlot{
				Kind:   rapid.SampledFrom([]string{network.SlotVLAN, network.SlotVXLAN}).Draw(t, "kind"),
				Device: rapid.SampledFrom([]string{"ens4", "a/b"}).Draw(t, "device"),
				ID:     rapid.IntRange(1, 200).Draw(t, "id"),
			}
			o, taken := want[p]
			if rapid.Bool().Draw(t, "remove") {
				if b.Remove(o.Token) != taken {
					t.Fatalf("Remove(%s): want %v", p, taken)
				}
				delete(want, p)
				continue
			}
			err := b.Add(tenant.Reservation{Slot: p, Owner: owner(i)})
			if errors.Is(err, tenant.ErrSlotTaken) != taken {
				t.Fatalf("Add(%s): got %v, want taken %v", p, err, taken)
			}
			if !taken {
				want[p] = owner(i)
			}
		}
		read, err := tenant.ParseReservations(b.Encode())
		if err != nil {
			t.Fatal(err)
		}
		for name, reservations := range map[string]*tenant.Reservations{"original": b, "parsed": read} {
			got := map[network.TenantSlot]tenant.Owner{}
			for r := range reservations.All() {
				got[r.Slot] = r.Owner
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s reservations: -want +got\n%s", name, diff)
			}
			used := 0
			for _, pool := range slices.Compact(slices.SortedFunc(maps.Keys(want), func(a, b network.TenantSlot) int { return strings.Compare(a.Kind+a.Device, b.Kind+b.Device) })) {
				used = max(used, reservations.Used(pool.Kind, pool.Device))
			}
			if reservations.Len() != len(want) || used > len(want) {
				t.Fatalf("%s reservations: Len %d, most used %d, want %d in all", name, reservations.Len(), used, len(want))
			}
		}
	})
}

func FuzzParseReservations(f *testing.F) {
	f.Add("vlan/ens4/15", "1000 team-a/net1 0000000000000001, 1003 team-a/net2 0000000000000002")
	f.Add("nic/a.b/c/0", "1 team-a/net-* 0000000000000001")
	f.Fuzz(func(t *testing.T, key, text string) {
		b, err := tenant.ParseReservations(map[string]string{key: text})
		if err != nil {
			return
		}
		if diff := cmp.Diff(map[string]string{key: text}, b.Encode()); diff != "" {
			t.Errorf("Encode after ParseReservations: -want +got\n%s", diff)
		}
	})
}

// ParseReservations parses all reservations that Add accepts: no name or device makes the others
// unreadable, or one reservation two.
func TestAddIsReadable(t *testing.T) {
	t.Parallel()
	text := func(good ...string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.SampledFrom(good), rapid.StringMatching(`[a-zA-Z0-9 ,/*._-]{0,8}`), rapid.String())
	}
	rapid.Check(t, func(t *rapid.T) {
		b, taken := tenant.NewReservations(), map[string]tenant.Reservation{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			r := tenant.Reservation{
				Slot: network.TenantSlot{
					Kind:   text(network.SlotVLAN, network.SlotVXLAN, network.SlotNIC, network.SlotPlugin).Draw(t, "kind"),
					Device: text("ens4", "a/b").Draw(t, "device"), ID: rapid.IntRange(-1, 5000).Draw(t, "id"),
				},
				Owner: tenant.Owner{
					Namespace: text("red").Draw(t, "namespace"), Name: text("net", "net-*").Draw(t, "name"),
					Token: text("0123456789abcdef", "0123456789abcde0", "0123456789abcde1").Draw(t, "token"),
				},
			}
			if b.Add(r) == nil {
				taken[r.Owner.Token] = r
			}
		}
		read, err := tenant.ParseReservations(b.Encode())
		if err != nil {
			t.Fatalf("ParseReservations after Add: %v", err)
		}
		got := map[string]tenant.Reservation{}
		for r := range read.All() {
			got[r.Owner.Token] = r
		}
		if diff := cmp.Diff(taken, got); diff != "" {
			t.Fatalf("parsed again: -added +parsed\n%s", diff)
		}
	})
}

func TestAddErrors(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	cases := map[string]struct {
		reason string
		r      tenant.Reservation
	}{
		"Upper":     {"The name is invalid, which the API server checks after admission.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red", Name: "Bad", Token: token}}},
		"Injected":  {"The name would be parsed as a second entry.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red", Name: "x " + token + ", 1001 red/y", Token: token}}},
		"Generated": {"The prefix of the generated name is invalid.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red", Name: "X_*", Token: token}}},
		"Slash":     {"The namespace is invalid.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red/x", Name: "y", Token: token}}},
		"Newline":   {"The name has a newline.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red", Name: "y\n", Token: token}}},
		"NoOwner":   {"The namespace is missing.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Name: "y", Token: token}}},
		"Token":     {"The token is missing.", tenant.Reservation{Slot: vlan(5), Owner: tenant.Owner{Namespace: "red", Name: "y"}}},
		"ID":        {"The VLAN does not exist.", tenant.Reservation{Slot: vlan(4095), Owner: owner(1)}},
		"Kind":      {"The kind does not exist.", tenant.Reservation{Slot: network.TenantSlot{Kind: "gre", Device: "ens4", ID: 1}, Owner: owner(1)}},
		"Device":    {"The device is missing.", tenant.Reservation{Slot: network.TenantSlot{Kind: network.SlotVLAN, ID: 1}, Owner: owner(1)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tenant.NewReservations()
			reserve(t, b, vlan(1))
			before := b.Encode()
			if err := b.Add(tc.r); err == nil {
				t.Errorf("%s\nAdd(%v): got no error", tc.reason, tc.r)
			}
			if diff := cmp.Diff(before, b.Encode()); diff != "" {
				t.Errorf("%s\na failed Add changed the reservations: -before +after\n%s", tc.reason, diff)
			}
		})
	}
}
