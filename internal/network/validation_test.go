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

// request parses one entry of an annotation.
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
		dual     = `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64", rt_tables: 100}}`
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
		"Plain":          {reason: "An interface needs no address.", spec: dual, entry: `{"clusterNetwork":"net"}`},
		"Dynamic":        {reason: "The network has both families.", spec: dual, entry: `{"clusterNetwork":"net","ip":"dynamic","ip6":"dynamic"}`},
		"Static":         {reason: "The addresses are allowed.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.9","ip6":"fd00::9"}`},
		"OutsidePool":    {reason: "Static addresses may be outside the pool of dynamic addresses.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {end: 10.0.0.9}}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.200"}`},
		"OutsideSubnet":  {reason: "An address outside the subnet is not reachable.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.1.9"}`, refused: []string{"ip:", `"10.0.1.9"`, "10.0.0.0/24"}},
		"OutsideSubnet6": {reason: "An address outside the subnet is not reachable.", spec: dual, entry: `{"clusterNetwork":"net","ip6":"fd01::9"}`, refused: []string{"ip6:", `"fd01::9"`, "fd00::/64"}},
		"Network":        {reason: "Hosts do not have the network or broadcast address.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.0"}`, refused: []string{"ip:", "network or broadcast"}},
		"Broadcast":      {reason: "Hosts do not have the network or broadcast address.", spec: dual, entry: `{"clusterNetwork":"net","ip":"10.0.0.255"}`, refused: []string{"ip:", "network or broadcast"}},
		"Anycast6":       {reason: "The first address is the anycast address of routers.", spec: dual, entry: `{"clusterNetwork":"net","ip6":"fd00::"}`, refused: []string{"ip6:"}},
		"Gateway":        {reason: "The Pod would get the packets of other Pods.", spec: `{Options: {cidr: 10.0.0.0/24, routes: {10.9.0.0/16: 10.0.0.1}}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", `"10.0.0.1"`, "gateway"}},
		"Gateway6":       {reason: "A gateway of IPv6 is rejected too.", spec: `{Options: {net6: "fd00::/64", routes6: {"fd01::/64": "fd00::a"}}}`, entry: `{"clusterNetwork":"net","ip6":"fd00::a"}`, refused: []string{"ip6:", `"fd00::a"`, "gateway"}},
		"PointToPoint":   {reason: "Both addresses of a point-to-point subnet are for hosts.", spec: point, entry: `{"clusterNetwork":"net","ip":"10.0.0.0","ip6":"fd00::1"}`},
		"InStaticPool":   {reason: "The addresses are allowed.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.7","ip6":"fd00::8"}`},
		"BeyondPool":     {reason: "The address is in the subnet and in no range of the static pool.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.10"}`, refused: []string{"ip:", `"10.0.0.10"`, "static_pool", "10.0.0.5-10.0.0.7, 10.0.0.9:"}},
		"BeyondPool6":    {reason: "The address is in the subnet and in no range of the static pool.", spec: pool, entry: `{"clusterNetwork":"net","ip6":"fd00::9"}`, refused: []string{"ip6:", `"fd00::9"`, "fd00::8:"}},
		"GatewayInPool":  {reason: "A gateway in the static pool is rejected too.", spec: pool, entry: `{"clusterNetwork":"net","ip":"10.0.0.5"}`, refused: []string{"ip:", `"10.0.0.5"`, "gateway"}},
		"PoolDynamic":    {reason: "The static pool does not limit dynamic addresses.", spec: `{Options: {cidr: 10.0.0.0/24, static_pool: []}}`, entry: `{"clusterNetwork":"net","ip":"dynamic"}`},
		"NoStatic":       {reason: "An empty list allows none.", spec: `{Options: {cidr: 10.0.0.0/24, static_pool: []}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.9"}`, refused: []string{"ip:", `use "dynamic"`}},
		"NoStaticOfOne":  {reason: "The list has ranges of the other family only.", spec: `{Options: {cidr: 10.0.0.0/24, net6: "fd00::/64", static_pool: [{start: "fd00::8"}]}}`, entry: `{"clusterNetwork":"net","ip":"10.0.0.9"}`, refused: []string{"ip:", `use "dynamic"`}},
		"NoSubnet":       {reason: "The network has no subnet of the family.", spec: l2, entry: `{"clusterNetwork":"net","ip":"dynamic"}`, refused: []string{"ip:", "has no cidr"}},
		"NoSubnet6":      {reason: "The network has no subnet of the family.", spec: `{Options: {cidr: 10.0.0.0/24}}`, entry: `{"clusterNetwork":"net","ip6":"dynamic"}`, refused: []string{"ip6:", "has no net6"}},
		"StaticNoSubnet": {reason: "The network has no subnet of the family.", spec: l2, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", `"10.0.0.1"`, "has no cidr"}},
		"Delegate":       {reason: "Another plugin manages addresses itself.", spec: delegate, entry: `{"clusterNetwork":"net","ip":"dynamic","ip6":"dynamic"}`},
		"DelegateStatic": {reason: "Another plugin chooses the address itself.", spec: delegate, entry: `{"clusterNetwork":"net","ip":"10.0.0.1"}`, refused: []string{"ip:", "CNI plugin bridge manages addresses itself"}},
		"Proutes":        {reason: "The gateway is in the subnet.", spec: dual, entry: `{"clusterNetwork":"net","ip":"dynamic","proutes":{"0.0.0.0/0":"10.0.0.1"}}`},
		"ProutesOutside": {
			reason: "The kernel cannot reach a gateway outside the subnet.", spec: dual,
			entry:   `{"clusterNetwork":"net","ip":"dynamic","proutes":{"0.0.0.0/0":"10.0.1.1"}}`,
			refused: []string{"proutes[0.0.0.0/0]:", `"10.0.1.1"`, "10.0.0.0/24"},
		},
		"ProutesToItself": {
			reason: "The kernel would reject the route after the address is claimed.", spec: dual,
			entry:   `{"clusterNetwork":"net","ip6":"fd00::9","ip":"10.0.0.9","proutes6":{"fd01::/64":"fd00::1","::/0":"fd00::9"}}`,
			refused: []string{"proutes6[::/0]:", `"fd00::9"`, "own address"},
		},
		"ProutesNoAddress": {
			reason: "Policy routes are for traffic from the interface's own address.", spec: dual,
			entry: `{"clusterNetwork":"net","ip":"dynamic","proutes6":{"::/0":"fd00::1"}}`, refused: []string{"proutes6:", "request one with ip6"},
		},
		"ProutesNoTable": {
			reason: "Policy routes need a routing table.", spec: `{Options: {cidr: 10.0.0.0/24}}`,
			entry: `{"clusterNetwork":"net","ip":"dynamic","proutes":{"0.0.0.0/0":"10.0.0.1"}}`, refused: []string{"proutes: Forbidden", "rt_tables"},
		},
		"ProutesDelegate": {reason: "Another plugin manages routes itself.", spec: delegate, entry: `{"clusterNetwork":"net","proutes":{"0.0.0.0/0":"10.0.1.1"}}`, refused: []string{"proutes:", "CNI plugin bridge manages routes itself"}},
		"Tenant":          {reason: "The namespace is in AllowedTenants.", spec: tenants, namespace: "b", entry: `{"clusterNetwork":"net"}`},
		"OtherTenant": {
			reason: "The namespace is not in AllowedTenants.", spec: tenants, namespace: "c", entry: `{"clusterNetwork":"net"}`,
			refused: []string{"ClusterNetwork/net", "spec.AllowedTenants", "namespace c"},
		},
		"OwnNamespace": {reason: "A DanmNet is for the Pods of its namespace.", kind: v1.KindDanmNet, spec: l2, namespace: "ns", entry: `{"network":"net"}`},
		"OtherNamespace": {
			reason: "A DanmNet is not for other namespaces.", kind: v1.KindDanmNet, spec: l2, namespace: "a", entry: `{"network":"net"}`,
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
			err = network.CheckRequest(n, tc.namespace, request(t, tc.entry))
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nCheckRequest: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nCheckRequest: got %q, want %q in it", tc.reason, err, part)
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

// A Pod without an annotation gets an address of each family of the network.
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
		if err := network.CheckRequest(n, "any", r); err != nil {
			t.Errorf("CheckRequest of DefaultRequest(%s): %v", spec, err)
		}
	}
}
