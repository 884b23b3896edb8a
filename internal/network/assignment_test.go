// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestParseAssignment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, text, refused string }{
		"Empty":     {"the text is empty", "", "kind/device/ID"},
		"NoDevice":  {"the slot has two parts", "vlan/5 0123456789abcdef", "kind/device/ID"},
		"NoName":    {"the device is empty", "vlan//5 0123456789abcdef", "kind/device/ID"},
		"Kind":      {"the kind does not exist", "gre/ens4/5 0123456789abcdef", `got "gre"`},
		"HighVLAN":  {"a VLAN ID has 12 bits", "vlan/ens4/4095 0123456789abcdef", "1 to 4094"},
		"Zero":      {"VLAN 0 is not a VLAN", "vlan/ens4/0 0123456789abcdef", "1 to 4094"},
		"Number":    {"the ID is not a number", "vlan/ens4/x 0123456789abcdef", `got "x"`},
		"NoToken":   {"the token is missing", "vlan/ens4/5", "16 hexadecimal digits"},
		"LongText":  {"the beginning and the end of a long text say what it is", "gre/" + strings.Repeat("a", 200) + "/42 0", `/42": kind must be`},
		"LongToken": {"the token is too long", "vlan/ens4/5 0123456789abcdef0", "16 hexadecimal digits"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := network.ParseAssignment(tc.text); err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: ParseAssignment(%q): got %v, want %q", tc.reason, tc.text, err, tc.refused)
			}
		})
	}
}

func TestAssignmentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := network.Assignment{
			Slot: network.TenantSlot{
				Kind:   rapid.SampledFrom([]string{network.SlotVLAN, network.SlotVXLAN, network.SlotNIC, network.SlotPlugin}).Draw(t, "kind"),
				Device: rapid.StringMatching(`[a-z.]{1,15}(/[a-z.]{1,15})?`).Draw(t, "device"),
				ID:     rapid.IntRange(1, 4094).Draw(t, "ID"),
			},
			Token: rapid.StringMatching(`[0-9a-f]{16}`).Draw(t, "token"),
		}
		got, err := network.ParseAssignment(want.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseAssignment(%q): -want +got\n%s", want, diff)
		}
	})
}
