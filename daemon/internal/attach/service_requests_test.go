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
	env := newEnvironment()
	env.pod(`[{"network":"blue","ip":"10.0.0.4/8","ip6":"fd00::5",
		"proutes":{"10.5.0.0/16":"10.0.0.1"},"proutes6":{"fd05::/64":"fd00::1"}}]`)
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	got := decode(env.records["a/eth0"]).Interfaces[0]
	want := attach.Interface{
		V4: netip.MustParsePrefix("10.0.0.4/29"), V6: netip.MustParsePrefix("fd00::5/125"),
		Proutes: []network.Route{
			{Dst: netip.MustParsePrefix("10.5.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Dst: netip.MustParsePrefix("fd05::/64"), Gateway: netip.MustParseAddr("fd00::1")},
		},
	}
	if got.V4 != want.V4 || got.V6 != want.V6 {
		t.Errorf("got addresses %v and %v, want %v and %v with the prefix length of the network", got.V4, got.V6, want.V4, want.V6)
	}
	if !got.StaticV4 || !got.StaticV6 {
		t.Error("got dynamic addresses in the record, want static ones, which must not enter the warm pool")
	}
	if a, b := encodeJSON(t, got.Proutes), encodeJSON(t, want.Proutes); a != b {
		t.Errorf("got policy routes %s, want %s", a, b)
	}
}

// Only a requested address is static.
func TestAddMarksStaticAddresses(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	env.pod(`[{"network":"blue","ip":"dynamic","ip6":"fd00::5"}]`)
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if got := decode(env.records["a/eth0"]).Interfaces[0]; got.StaticV4 || !got.StaticV6 {
		t.Errorf("got static IPv4 %t and IPv6 %t, want only IPv6", got.StaticV4, got.StaticV6)
	}
}

// A dynamic address that is a gateway of the Pod's own policy routes is given back. A retry gets
// another one.
func TestAddRejectsOwnGateway(t *testing.T) {
	t.Parallel()
	for family, entry := range map[string]string{
		"IPv4": `"ip":"dynamic","proutes":{"10.5.0.0/16":"10.0.0.1"}`,
		"IPv6": `"ip6":"dynamic","proutes6":{"fd05::/64":"fd00::1"}`,
	} {
		env := newEnvironment()
		env.pod(`[{"network":"blue",` + entry + `}]`)
		d := env.mustStart(t)
		_, err := d.Add(context.Background(), env.sandbox("a"))
		if !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), "gateway") {
			t.Errorf("%s: got %v, want an error about the gateway", family, err)
		}
		if len(env.claimed) > 0 || len(d.callsWithPrefix("Attach")) > 0 {
			t.Errorf("%s: got claimed addresses %v and calls %v, want neither", family, env.claimed, d.callsWithPrefix("Attach"))
		}
	}
}

// A delegate manages its addresses itself, even if its network has a subnet.
func TestAddClaimsNothingForDelegates(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	env.addUnusableNetworks()
	env.pod(`[{"clusterNetwork":"flat6","ip":"dynamic"}]`)
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if len(env.claimed) > 0 || len(d.callsWithPrefix("Claim")) != 1 {
		t.Errorf("got addresses %v after %d claims, want none after 1, which creates the entry", env.claimed, len(d.callsWithPrefix("Claim")))
	}
}

// encodeJSON returns a value as JSON.
func encodeJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
