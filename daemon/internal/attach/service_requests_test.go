// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Policy routes of both families and static addresses come from the annotation.
func TestAddRequests(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.pod(`[{"network":"blue","ip":"10.0.0.4/8","ip6":"fd00::5",
		"proutes":{"10.5.0.0/16":"10.0.0.1"},"proutes6":{"fd05::/64":"fd00::1"}}]`)
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	got := decode(w.records["a/eth0"]).Interfaces[0]
	want := attach.Interface{
		V4: netip.MustParsePrefix("10.0.0.4/29"), V6: netip.MustParsePrefix("fd00::5/125"),
		Proutes: []network.Route{
			{Dst: netip.MustParsePrefix("10.5.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Dst: netip.MustParsePrefix("fd05::/64"), Gateway: netip.MustParseAddr("fd00::1")},
		},
	}
	if got.V4 != want.V4 || got.V6 != want.V6 {
		t.Errorf("addresses %v and %v, want %v and %v: the network's mask is used", got.V4, got.V6, want.V4, want.V6)
	}
	if !got.StaticV4 || !got.StaticV6 {
		t.Error("the record does not say that the addresses were asked for by name: they would be kept for other Pods")
	}
	if a, b := mustJSON(t, got.Proutes), mustJSON(t, want.Proutes); a != b {
		t.Errorf("policy routes %s, want %s", a, b)
	}
}

// Only what was asked for by name is static.
func TestAddTellsStaticFromDynamic(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.pod(`[{"network":"blue","ip":"dynamic","ip6":"fd00::5"}]`)
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if got := decode(w.records["a/eth0"]).Interfaces[0]; got.StaticV4 || !got.StaticV6 {
		t.Errorf("IPv4 is static: %t, IPv6: %t, want only the latter", got.StaticV4, got.StaticV6)
	}
}

// A dynamic address that the Pod's own policy routes lead to is given back, and the next
// try gets another.
func TestAddIsNotItsOwnGateway(t *testing.T) {
	t.Parallel()
	for family, entry := range map[string]string{
		"IPv4": `"ip":"dynamic","proutes":{"10.5.0.0/16":"10.0.0.1"}`,
		"IPv6": `"ip6":"dynamic","proutes6":{"fd05::/64":"fd00::1"}`,
	} {
		w := newWorld()
		w.pod(`[{"network":"blue",` + entry + `}]`)
		l := w.mustStart(t)
		_, err := l.Add(context.Background(), w.sandbox("a"))
		if !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), "gateway") {
			t.Errorf("%s: got %v, want an error about the gateway", family, err)
		}
		if len(w.held) > 0 || len(l.made("Attach")) > 0 {
			t.Errorf("%s: holds %v after %v", family, w.held, l.made("Attach"))
		}
	}
}

// A delegate manages its addresses itself, also when its network has a subnet.
func TestAddClaimsNothingForDelegates(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.addOdd()
	w.pod(`[{"clusterNetwork":"flat6","ip":"dynamic"}]`)
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if len(w.held) > 0 || len(l.made("Claim")) != 1 {
		t.Errorf("held %v after %d claims, want none after one: the entry tells of the use", w.held, len(l.made("Claim")))
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
