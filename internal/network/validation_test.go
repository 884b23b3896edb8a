// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// request is the one interface of an annotation.
func request(t *testing.T, entry string) network.InterfaceRequest {
	t.Helper()
	rs, err := network.ParseInterfaces(map[string]string{v1.InterfacesAnnotation: "[" + entry + "]"})
	if err != nil || len(rs) != 1 {
		t.Fatalf("entry of the test: %v, %v", rs, err)
	}
	return rs[0]
}

func TestCheckRequest(t *testing.T) {
	t.Parallel()
	const (
		dual     = `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64"}}`
		l2       = `{}`
		point    = `{Options: {cidr: 10.0.0.0/31, net6: "fd00::/127"}}`
		delegate = `{NetworkType: bridge}`
		tenants  = `{AllowedTenants: [a, b]}`
		pool     = `{Options: {cidr: 10.0.0.0/24, routes: {10.9.0.0/16: 10.0.0.5}, net6: "fd00::/64",
			static_pool: [{start: 10.0.0.5, end: 10.0.0.7}, {start: 10.0.0.9}, {start: "fd00::8"}]}}`
	)
	cases := map[string]struct {
		reason, kind, spec, namespace, entry string
		refused                              []string
	}{
		"Plain":          {reason: "No address asked for.", spec: dual, entry: `{"clusterNetwork":"net"}`},
		"Dynamic":        {reason: "Both families are there.", spec: dual, entry: `{"clusterNetwork":"net","ip":"dynamic","ip6":"dynamic"}`},
		"Static":         {reason: "Inside.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.9","ip6":"fd00::9"}`},
		"OutsidePool":    {reason: "Static addresses lie anywhere in the subnet.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.9}}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.200"}`},
		"OutsideSubnet":  {reason: "Nobody could answer.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.1.9"}`, refused: []string{"ip:", `"10.0.1.9"`, "10.0.0.0/24"}},
		"OutsideSubnet6": {reason: "Nobody could answer.", spec: dual, entry: `{"clusterNetwork":"net","ip6":"fd01::9"}`, refused: []string{"ip6:", `"fd01::9"`, "fd00::/64"}},
		"Network":        {reason: "No host's address.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.0"}`, refused: []string{"ip:", "network or broadcast"}},
		"Broadcast":      {reason: "No host's address.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.255"}`, refused: []string{"ip:", "network or broadcast"}},
		"Anycast6":       {reason: "The routers' address.", spec: dual, entry: `{"clusterNetwork":"net","ip6":"fd00::"}`, refused: []string{"ip6:"}},
		"Gateway":        {reason: "The others' packets would come to the Pod.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.9.0.0/16: 10.0.0.1}}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", `"10.0.0.1"`, "gateway"}},
		"Gateway6":       {reason: "The same.", spec: `{Options: {net6: "fd00::/64", routes6: {"fd01::/64": "fd00::a"}}}`, entry: `{"clusterNetwork":"net","ip6":"fd00::a"}`, refused: []string{"ip6:", `"fd00::a"`, "gateway"}},
		"PointToPoint":   {reason: "Both ends are hosts.", spec: point, entry: `{"clusterNetwork":"net","ip":"10.0.0.0","ip6":"fd00::1"}`},
		"InStaticPool":   {reason: "Inside.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.7","ip6":"fd00::8"}`},
		"BeyondPool":     {reason: "In the subnet, and in no range.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.10"}`, refused: []string{"ip:", `"10.0.0.10"`, "static_pool", "10.0.0.5-10.0.0.7, 10.0.0.9:"}},
		"BeyondPool6":    {reason: "In the subnet, and in no range.", spec: pool, entry: `{"clusterNetwork":"net","ip6":"fd00::9"}`, refused: []string{"ip6:", `"fd00::9"`, "fd00::8:"}},
		"GatewayInPool":  {reason: "A range makes nothing of a gateway.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.5"}`, refused: []string{"ip:", `"10.0.0.5"`, "gateway"}},
		"PoolDynamic":    {reason: "It is for static addresses only.", spec: `{Options: {cidr: 10.0.0.0/24, static_pool: []}}`, entry: `{"clusterNetwork":"net","ip":"dynamic"}`},
		"NoStatic":       {reason: "An empty list allows none.", spec: `{Options: {cidr: 10.0.0.0/24, static_pool: []}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.9"}`, refused: []string{"ip:", `use "dynamic"`}},
		"NoStaticOfOne":  {reason: "The list has ranges of the other family only.", spec: `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64", static_pool: [{start: "fd00::8"}]}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.9"}`, refused: []string{"ip:", `use "dynamic"`}},
		"NoSubnet":       {reason: "Nowhere to take it from.", spec: l2, entry: `{"clusterNetwork":"net","ip":"dynamic"}`, refused: []string{"ip:", "has no cidr"}},
		"NoSubnet6":      {reason: "Nowhere to take it from.", spec: `{Options: {cidr: 10.0.0.0/24}}`, entry: `{"clusterNetwork":"net","ip6":"dynamic"}`, refused: []string{"ip6:", "has no net6"}},
		"StaticNoSubnet": {reason: "Nowhere to take it from.", spec: l2, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", `"10.0.0.1"`, "has no cidr"}},
		"Delegate":       {reason: "The delegate has addresses of its own.", spec: delegate, entry: `{"clusterNetwork":"net","ip":"dynamic","ip6":"dynamic"}`},
		"DelegateStatic": {reason: "Nobody could promise it.", spec: delegate, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", "CNI plugin bridge manages its addresses itself"}},
		"Proutes":        {reason: "A gateway inside.", spec: dual, entry: `{"clusterNetwork":"net","ip":"dynamic","proutes":{"0.0.0.0/0":"10.0.0.1"}}`},
		"ProutesOutside": {
			reason: "The kernel could not reach it.", spec: dual,
			entry:   `{"clusterNetwork":"net","ip":"dynamic","proutes":{"0.0.0.0/0":"10.0.1.1"}}`,
			refused: []string{"proutes[0.0.0.0/0]:", `"10.0.1.1"`, "10.0.0.0/24"},
		},
		"ProutesToItself": {
			reason: "The kernel would refuse the route, after the address was claimed.", spec: dual,
			entry:   `{"clusterNetwork":"net","ip6":"fd00::9","ip":"10.0.0.9","proutes6":{"fd01::/64":"fd00::1","::/0":"fd00::9"}}`,
			refused: []string{"proutes6[::/0]:", `"fd00::9"`, "own address"},
		},
		"ProutesNoAddress": {
			reason: "They are for the interface's own address.", spec: dual,
			entry: `{"clusterNetwork":"net","ip":"dynamic","proutes6":{"::/0":"fd00::1"}}`, refused: []string{"proutes6:", "ask for one with ip6"},
		},
		"ProutesDelegate": {reason: "Its routes are its own.", spec: delegate, entry: `{"clusterNetwork":"net","proutes":{"0.0.0.0/0":"10.0.1.1"}}`, refused: []string{"proutes:", "CNI plugin bridge manages its routes itself"}},
		"Tenant":          {reason: "Named.", spec: tenants, namespace: "b", entry: `{"clusterNetwork":"net"}`},
		"OtherTenant": {
			reason: "Not named.", spec: tenants, namespace: "c", entry: `{"clusterNetwork":"net"}`,
			refused: []string{"ClusterNetwork/net", "spec.AllowedTenants", "namespace c"},
		},
		"OwnNamespace": {reason: "A DanmNet is for its namespace.", kind: v1.KindDanmNet, spec: l2, namespace: "ns", entry: `{"network":"net"}`},
		"OtherNamespace": {
			reason: "Namespaces are walls.", kind: v1.KindDanmNet, spec: l2, namespace: "a", entry: `{"network":"net"}`,
			refused: []string{"DanmNet/ns/net", "namespace a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.kind == "" {
				tc.kind = v1.KindClusterNetwork
			}
			n, err := network.FromObject(object(t, tc.kind, tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			err = n.CheckRequest(tc.namespace, request(t, tc.entry))
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nPermit: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nPermit: got %q, want it to say %q", tc.reason, err, part)
				}
			}
		})
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	got := []string{
		request(t, `{"network":"a"}`).Ref("ns").String(),
		request(t, `{"tenantNetwork":"b"}`).Ref("ns").String(),
		request(t, `{"clusterNetwork":"c"}`).Ref("ns").String(),
	}
	for _, ref := range network.DefaultRefs("ns") {
		got = append(got, ref.String())
	}
	want := []string{
		"DanmNet/ns/a", "TenantNetwork/ns/b", "ClusterNetwork/c",
		"DanmNet/ns/default", "TenantNetwork/ns/default", "ClusterNetwork/default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("references: -want +got\n%s", diff)
	}
}

// A Pod without an annotation gets an address of each family that there is.
func TestDefaultRequest(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][2]bool{
		`{}`: {}, `{Options: {cidr: 10.0.0.0/24}}`: {true, false}, `{Options: {net6: "fd00::/64"}}`: {false, true},
	} {
		n, err := network.FromObject(object(t, v1.KindClusterNetwork, spec))
		if err != nil {
			t.Fatal(err)
		}
		r := network.DefaultRequest(n)
		if got := [2]bool{r.V4.Dynamic, r.V6.Dynamic}; got != want || r.Ref("any") != n.Ref {
			t.Errorf("DefaultRequest(%s): got %v for %s, want %v for %s", spec, got, r.Ref("any"), want, n.Ref)
		}
		if err := n.CheckRequest("any", r); err != nil {
			t.Errorf("DefaultRequest(%s) is not permitted: %v", spec, err)
		}
	}
}
