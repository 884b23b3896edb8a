// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A refusal says what is wrong, is an Event on the Pod, and leaves nothing.
func TestAddRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		annotation string
		change     func(*world, *attach.Request)
		says       []string
		is         error
		event      string
	}{
		"NoNetwork": {
			reason: "a Pod that names none, and no default", says: []string{`"default"`, "danm.io/interfaces"},
			is: attach.ErrNotFound, event: attach.ReasonNetwork,
		},
		"UnknownNetwork": {
			reason: "a name without an object", annotation: `[{"network":"nope"}]`, says: []string{"DanmNet/ns/nope"},
			is: attach.ErrNotFound, event: attach.ReasonNetwork,
		},
		"BadJSON": {
			reason: "not JSON", annotation: `[{`, says: []string{"danm.io/interfaces"}, is: network.ErrInvalid, event: attach.ReasonInterfaces,
		},
		"Tenant": {
			reason: "another tenant's", annotation: `[{"clusterNetwork":"other"}]`, says: []string{"ClusterNetwork/other", "AllowedTenants"},
			event: attach.ReasonTenant,
		},
		"TenantDefault": {
			reason: "AllowedTenants holds for the default network too", says: []string{"ClusterNetwork/default", "AllowedTenants"},
			change: func(w *world, _ *attach.Request) { w.refuseDefault() }, event: attach.ReasonTenant,
		},
		"DefaultInvalid": {
			reason: "the next one would be another network than its owner means", says: []string{"DanmNet/ns/default"},
			change: func(w *world, _ *attach.Request) {
				w.invalid = map[network.Ref]bool{network.DefaultRefs("ns")[0]: true}
				w.add(network.Network{Ref: network.DefaultRefs("ns")[2], Type: "ipvlan"})
			}, is: network.ErrInvalid, event: attach.ReasonNetwork,
		},
		"Deleting": {
			reason: "takes no new ADD", annotation: `[{"tenantNetwork":"dying"}]`, says: []string{"TenantNetwork/ns/dying", "deleted"},
			event: attach.ReasonNetwork,
		},
		"StaticOutside": {
			reason: "not in the subnet", annotation: `[{"network":"blue","ip":"10.9.0.1"}]`, says: []string{"10.9.0.1", "10.0.0.0/29"},
			event: attach.ReasonInterfaces,
		},
		"StaticTaken": {
			reason: "somebody has it", annotation: `[{"network":"blue","ip":"10.0.0.2"},{"network":"blue","ip":"10.0.0.2"}]`,
			says: []string{"10.0.0.2", "taken"}, event: attach.ReasonAddress,
		},
		"StaticOfDelegate": {
			reason: "another plugin's addresses cannot be promised", annotation: `[{"clusterNetwork":"flat6","ip":"10.0.0.3"}]`,
			says: []string{"ip:", "bridge", "manages its addresses itself"}, event: attach.ReasonInterfaces,
		},
		"ProutesOfDelegate": {
			reason: "nor its routes", annotation: `[{"clusterNetwork":"flat6","ip":"dynamic","proutes":{"10.5.0.0/16":"10.0.0.1"}}]`,
			says: []string{"proutes", "bridge"}, event: attach.ReasonInterfaces,
		},
		"TenantsDelegate": {
			reason: "a tenant must not choose what root executes", annotation: `[{"tenantNetwork":"theirs"}]`,
			says: []string{"TenantNetwork/ns/theirs", "spec.NetworkType", "bridge"}, event: attach.ReasonNetwork,
		},
		"TenantsVLAN": {
			reason: "nor the VLAN of others", annotation: `[{"tenantNetwork":"spy"}]`,
			says: []string{"TenantNetwork/ns/spy", "spec.Options.vlan", "500"}, event: attach.ReasonNetwork,
		},
		"SameNameTwice": {
			reason: "legacy names may collide", annotation: `[{"network":"blue"},{"network":"plain"},{"network":"plain"}]`,
			change: func(_ *world, r *attach.Request) { r.NamingScheme = "legacy" }, says: []string{"net"}, event: attach.ReasonInterfaces,
		},
		"NoBackend": {
			reason: "a type that this node cannot do", annotation: `[{"network":"vf"}]`, says: []string{"sriov", "DanmNet/ns/vf"},
			event: attach.ReasonNetwork,
		},
		"AnotherPod": {
			reason: "the Pod of that name is a newer one", annotation: three, says: []string{"ns/web"}, is: attach.ErrNotFound,
			change: func(_ *world, r *attach.Request) { r.PodUID = "older" },
		},
		"NoNamespace": {
			reason: "the sandbox is gone", annotation: three, says: []string{"/run/netns/gone"}, event: attach.ReasonAttach,
			change: func(_ *world, r *attach.Request) { r.Netns = "/run/netns/gone" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.pod(tc.annotation)
			w.addOdd()
			req := w.sandbox("a")
			if tc.change != nil {
				tc.change(w, &req)
			}
			l := w.mustStart(t)
			_, err := l.Add(context.Background(), req)
			if err == nil {
				t.Fatalf("%s: accepted", tc.reason)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, part)
				}
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%s: %v is no %v", tc.reason, err, tc.is)
			}
			var want []string
			if tc.event != "" {
				want = []string{"ns/web " + tc.event + ": " + err.Error()}
			}
			if diff := cmp.Diff(want, w.events); diff != "" {
				t.Errorf("%s: Events: -want +got:\n%s", tc.reason, diff)
			}
			w.mustBeEmpty(t, "after a refusal")
		})
	}
}

// addOdd adds networks that refuse.
func (w *world) addOdd() {
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "other"}, ID: "o", Type: "ipvlan", AllowedTenants: []string{"them"},
	})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "dying"}, ID: "d", Type: "ipvlan", Deleting: true,
	})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "theirs"}, ID: "t", Type: "bridge",
	})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "spy"}, ID: "s", Type: "ipvlan", Device: "ens4", VLAN: 500,
	})
	w.add(network.Network{Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "vf"}, ID: "vf", Type: "sriov"})
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "flat6"}, ID: "f", Type: "bridge",
		V4: subnet("10.0.0.0/24", "10.0.0.1", "10.0.0.9"),
	})
}

// refuseDefault makes a default network for others.
func (w *world) refuseDefault() {
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}, ID: "x", Type: "ipvlan", AllowedTenants: []string{"them"},
	})
}

// A Pod that can never start takes no dynamic address, however often it is tried: what it
// gives back rests, so that each try would take others.
func TestHopelessPodClaimsNothing(t *testing.T) {
	t.Parallel()
	blue := func(n int) string { return strings.Repeat(`{"network":"blue","ip":"dynamic","ip6":"dynamic"},`, n) }
	cases := map[string]struct {
		reason, annotation string
		// claims are those of static addresses.
		claims int
	}{
		"NoNIC":       {"the last network's NIC is not on the node", `[` + blue(31) + `{"network":"lost"}]`, 0},
		"NoBackend":   {"the last network's type is not supported here", `[` + blue(31) + `{"network":"vf"}]`, 0},
		"NoNetwork":   {"the last network does not exist", `[` + blue(31) + `{"network":"nope"}]`, 0},
		"StaticTaken": {"another Pod has the last one's address", `[` + blue(31) + `{"network":"blue","ip":"10.0.0.2"}]`, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.addOdd()
			w.add(network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "lost"}, ID: "lost", Type: "ipvlan", Device: missingNIC,
			})
			w.pod(tc.annotation)
			w.endpoints["other"] = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
			l := w.mustStart(t)
			if _, err := l.Add(context.Background(), w.sandbox("a")); err == nil {
				t.Fatalf("%s: accepted", tc.reason)
			}
			claims := 0
			for _, call := range l.calls {
				if call == "Claim" {
					claims++
				}
			}
			if claims != tc.claims {
				t.Errorf("%s: %d interfaces claimed addresses, want %d", tc.reason, claims, tc.claims)
			}
		})
	}
}
