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

// A rejected ADD names the cause in its error and an Event, and leaves nothing behind.
func TestAddRejects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		annotation string
		change     func(*environment, *attach.Request)
		contains   []string
		is         error
		event      string
		network    string
	}{
		"NoNetwork": {
			reason: "The Pod requests no interface, and there is neither a default network nor another CNI configuration.",
			is:     attach.ErrNoDefaultNetwork, event: "NoDefaultNetwork",
		},
		"UnknownDefault": {
			reason: "The API server does not answer, so that a default network may exist.", contains: []string{"default network TenantNetwork/ns/default"},
			change: func(env *environment, _ *attach.Request) {
				env.unknown = map[network.Ref]bool{network.DefaultRefs("ns")[1]: true}
				env.nodeConfiguration = "10-other.conflist"
			}, is: attach.ErrTryAgain, event: "NetworkNotReady",
		},
		"UnknownNetwork": {
			reason: "The network does not exist.", annotation: `[{"network":"nope"}]`, contains: []string{"DanmNet/ns/nope"},
			is: attach.ErrNotFound, event: "NetworkNotFound",
		},
		"OtherKind": {
			reason: "A network of the name exists in another kind.", annotation: `[{"clusterNetwork":"blue"}]`,
			contains: []string{"interface 0, network ClusterNetwork/blue: get network ClusterNetwork/blue: not found, but DanmNet/ns/blue exists: use network"},
			is:       attach.ErrNotFound, event: "NetworkNotFound",
		},
		"BadJSON": {
			reason: "The annotation is no JSON.", annotation: `[{`, contains: []string{"danm.io/interfaces"}, is: network.ErrInvalid, event: "InvalidAnnotations",
		},
		"Tenant": {
			reason: "The network allows other tenants.", annotation: `[{"clusterNetwork":"other"}]`, contains: []string{"ClusterNetwork/other", "AllowedTenants"},
			event: "NetworkNotAllowed",
		},
		"TenantDefault": {
			reason: "AllowedTenants also applies to the default network.", contains: []string{"ClusterNetwork/default", "AllowedTenants"},
			change: func(env *environment, _ *attach.Request) { env.addForeignDefault() }, event: "NetworkNotAllowed",
		},
		"DefaultInvalid": {
			reason: "The next default network must not replace an invalid one.", contains: []string{"DanmNet/ns/default"},
			change: func(env *environment, _ *attach.Request) {
				env.invalid = map[network.Ref]bool{network.DefaultRefs("ns")[0]: true}
				env.add(network.Network{Ref: network.DefaultRefs("ns")[2], Type: "ipvlan"})
			}, is: network.ErrInvalid, event: "InvalidNetwork",
		},
		"Deleting": {
			reason: "A network in deletion accepts no ADD.", annotation: `[{"tenantNetwork":"dying"}]`, contains: []string{"TenantNetwork/ns/dying", "deleted"},
			is: attach.ErrNetworkDeleting, event: "NetworkDeleting",
		},
		"StaticOutside": {
			reason: "The address is outside of the subnet.", annotation: `[{"network":"blue","ip":"10.9.0.1"}]`, contains: []string{"10.9.0.1", "10.0.0.0/29"},
			event: "InvalidAnnotations", network: "DanmNet/ns/blue",
		},
		"StaticTaken": {
			reason: "Another interface has the address.", annotation: `[{"network":"blue","ip":"10.0.0.2"},{"network":"blue","ip":"10.0.0.2"}]`,
			contains: []string{"10.0.0.2", "10.0.0.2 must be free"}, event: "AddressTaken", network: "DanmNet/ns/blue",
		},
		"StaticOfDelegate": {
			reason: "Another plugin manages the addresses.", annotation: `[{"clusterNetwork":"flat6","ip":"10.0.0.3"}]`,
			contains: []string{"ip:", "bridge", "manages addresses itself"}, event: "InvalidAnnotations",
		},
		"ProutesOfDelegate": {
			reason: "Another plugin manages the routes.", annotation: `[{"clusterNetwork":"flat6","ip":"dynamic","proutes":{"10.5.0.0/16":"10.0.0.1"}}]`,
			contains: []string{"proutes", "bridge"}, event: "InvalidAnnotations",
		},
		"TenantsDelegate": {
			reason: "A tenant must not choose a program that runs as root.", annotation: `[{"tenantNetwork":"theirs"}]`,
			contains: []string{"TenantNetwork/ns/theirs", "spec.NetworkType", "bridge"}, event: "InvalidNetwork",
		},
		"TenantsVLAN": {
			reason: "A tenant must not choose the VLAN of another tenant.", annotation: `[{"tenantNetwork":"spy"}]`,
			contains: []string{"TenantNetwork/ns/spy", "spec.Options.vlan", "500"}, event: "InvalidNetwork",
		},
		"SameNameTwice": {
			reason: "Two legacy names are equal.", annotation: `[{"network":"blue"},{"network":"plain"},{"network":"plain"}]`,
			change: func(_ *environment, r *attach.Request) { r.NamingScheme = "legacy" }, contains: []string{"net"}, event: "InvalidAnnotations",
		},
		"NoBackend": {
			reason: "The node does not support the network type.", annotation: `[{"network":"vf"}]`, contains: []string{"sriov", "DanmNet/ns/vf"},
			change: func(env *environment, _ *attach.Request) {
				env.devices = map[string]map[string][]string{"ns/web": {"a/b": {"x"}}}
			},
			event: "NetworkAttachmentFailed", network: "DanmNet/ns/vf",
		},
		"AnotherPod": {
			reason: "The Pod of that name has another UID.", annotation: threeInterfaces, contains: []string{"ns/web"}, is: attach.ErrNotFound,
			change: func(_ *environment, r *attach.Request) { r.PodUID = "older" },
		},
		"NoNamespace": {
			reason: "The sandbox is gone.", annotation: threeInterfaces, contains: []string{"/run/netns/gone"}, event: "NetworkAttachmentFailed",
			change: func(_ *environment, r *attach.Request) { r.Netns = "/run/netns/gone" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.pod(tc.annotation)
			env.addUnusableNetworks()
			req := env.sandbox("a")
			if tc.change != nil {
				tc.change(env, &req)
			}
			d := env.mustStart(t)
			_, err := d.Add(context.Background(), req)
			if err == nil {
				t.Fatalf("%s: got no error, want one", tc.reason)
			}
			for _, part := range tc.contains {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: got error %q, want one with %q", tc.reason, err, part)
				}
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.is)
			}
			var want []string
			if tc.event != "" {
				want = []string{"ns/web " + tc.event + ": " + err.Error()}
			}
			if failure := new(attach.PodError); !errors.As(err, &failure) && tc.event != "" || failure.Reason != tc.event {
				t.Errorf("%s: got reason %q of the error, want that of the Event, %q", tc.reason, failure.Reason, tc.event)
			}
			if diff := cmp.Diff(want, env.events); diff != "" {
				t.Errorf("%s: Events: -want +got:\n%s", tc.reason, diff)
			}
			if got := attach.NetworkOf(err); got.Kind != "" && got.Kind != network.KindNodeConfiguration && env.networks[got] == nil {
				t.Errorf("%s: got network %s of the error, which does not exist", tc.reason, got)
			}
			if got := attach.NetworkOf(err).String(); tc.network != "" && got != tc.network {
				t.Errorf("%s: got network %s of the error, want %s", tc.reason, got, tc.network)
			}
			env.mustBeEmpty(t, "after a rejected ADD")
		})
	}
}

// addUnusableNetworks adds networks that reject the Pod.
func (env *environment) addUnusableNetworks() {
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "other"}, ID: "o", Type: "ipvlan", AllowedTenants: []string{"them"},
	})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "dying"}, ID: "d", Type: "ipvlan", Deleting: true,
	})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "theirs"}, ID: "t", Type: "bridge",
	})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "spy"}, ID: "s", Type: "ipvlan", Device: "ens4", VLAN: 500,
	})
	env.add(network.Network{Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "vf"}, ID: "vf", Type: "sriov", DevicePool: "a/b"})
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "flat6"}, ID: "f", Type: "bridge",
		V4: subnet("10.0.0.0/24", "10.0.0.1", "10.0.0.9"),
	})
}

// addForeignDefault adds a default network of other tenants.
func (env *environment) addForeignDefault() {
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}, ID: "x", Type: "ipvlan", AllowedTenants: []string{"them"},
	})
}

// A Pod that can never start claims no dynamic address. Discarded addresses are in cooldown, so that
// each retry would use up other ones.
func TestUnstartablePodClaimsNothing(t *testing.T) {
	t.Parallel()
	blue := func(n int) string { return strings.Repeat(`{"network":"blue","ip":"dynamic","ip6":"dynamic"},`, n) }
	cases := map[string]struct {
		reason, annotation string
		// claims is the number of claims of static addresses.
		claims int
	}{
		"NoNIC":       {"The node lacks the NIC of the last network.", `[` + blue(31) + `{"network":"lost"}]`, 0},
		"NoDevice":    {"Kubelet has allocated no device for the last network.", `[` + blue(31) + `{"network":"vf"}]`, 0},
		"NoNetwork":   {"The last network does not exist.", `[` + blue(31) + `{"network":"nope"}]`, 0},
		"StaticTaken": {"Another Pod has the last address.", `[` + blue(31) + `{"network":"blue","ip":"10.0.0.2"}]`, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.addUnusableNetworks()
			env.add(network.Network{
				Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "lost"}, ID: "lost", Type: "ipvlan", Device: missingNIC,
			})
			env.pod(tc.annotation)
			env.endpoints["other"] = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
			d := env.mustStart(t)
			if _, err := d.Add(context.Background(), env.sandbox("a")); err == nil {
				t.Fatalf("%s: got no error, want one", tc.reason)
			}
			claims := 0
			for _, call := range d.calls {
				if call == "Claim" {
					claims++
				}
			}
			if claims != tc.claims {
				t.Errorf("%s: got %d claims, want %d", tc.reason, claims, tc.claims)
			}
		})
	}
}
