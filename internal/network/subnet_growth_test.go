// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A message that advises a change which admission refuses sends its reader in a circle.
func TestGrowthAdvice(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, kind, spec, want, follow string }{
		"Range": {
			reason: "The subnet has addresses outside the pool.",
			spec:   `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.19}}}`,
			want:   "widen spec.Options.allocation_pool within cidr 10.0.0.0/24",
			follow: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.29}}}`,
		},
		"Whole": {
			reason: "The pool has all of the subnet by default.",
			spec:   `{Options: {cidr: 10.0.0.0/24}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.0/24, and allocation_pool with it if it is set",
			follow: `{Options: {cidr: 10.0.0.0/23}}`,
		},
		"WholeRange": {
			reason: "The pool has all of the subnet by its range.",
			spec:   `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.1, end: 10.0.0.254}}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.0/24, and allocation_pool with it if it is set",
			follow: `{Options: {cidr: 10.0.0.0/23, allocation_pool: {start: 10.0.0.1, end: 10.0.1.254}}}`,
		},
		"Gateway": {
			reason: "The addresses outside the pool are gateways, which no Pod gets.",
			spec:   `{Options: {cidr: 10.0.0.0/24, routes: {10.1.0.0/16: 10.0.0.1}, allocation_pool: {start: 10.0.0.2, end: 10.0.0.254}}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.0/24, and allocation_pool with it if it is set",
			follow: `{Options: {cidr: 10.0.0.0/23, routes: {10.1.0.0/16: 10.0.0.1}, allocation_pool: {start: 10.0.0.2, end: 10.0.1.254}}}`,
		},
		"Two": {
			reason: "A subnet of two addresses has no broadcast address.",
			spec:   `{Options: {cidr: 10.0.0.6/31}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.6/31, and allocation_pool with it if it is set",
			follow: `{Options: {cidr: 10.0.0.0/28}}`,
		},
		"Part6": {
			reason: "The pool of IPv6 is a part of the subnet.",
			spec:   `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::/120"}}}`,
			want:   "widen spec.Options.allocation_pool_v6 within net6 fd00::/64",
			follow: `{Options: {net6: "fd00::/64", allocation_pool_v6: {cidr: "fd00::/112"}}}`,
		},
		"Whole6": {
			reason: "The pool of IPv6 has all of a small subnet.",
			spec:   `{Options: {net6: "fd00::/120"}}`,
			want:   "widen spec.Options.net6 to a subnet that contains fd00::/120, and allocation_pool_v6 with it if it is set",
			follow: `{Options: {net6: "fd00::/112"}}`,
		},
		"Segment": {
			reason: "The rest of the subnet may be the pool of another network on the same VLAN.",
			spec:   `{Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.19}}}`,
			want:   "widen spec.Options.allocation_pool within cidr 10.0.0.0/24 (the other networks of the segment must allow it)",
			follow: `{Options: {host_device: ens4, vlan: 5, cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.29}}}`,
		},
		"Tenant": {
			reason: "The subnets of a TenantConfig limit the subnet.", kind: v1.KindTenantNetwork,
			spec:   `{Options: {cidr: 10.0.0.0/24}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.0/24, and allocation_pool with it if it is set (your TenantConfig must allow it)",
			follow: `{Options: {cidr: 10.0.0.0/23}}`,
		},
		"TenantSegment": {
			reason: "Both limit the subnet.", kind: v1.KindTenantNetwork,
			spec:   `{Options: {host_device: ens4, cidr: 10.0.0.0/24}}`,
			want:   "widen spec.Options.cidr to a subnet that contains 10.0.0.0/24, and allocation_pool with it if it is set (your TenantConfig and the other networks of the segment must allow it)",
			follow: `{Options: {host_device: ens4, cidr: 10.0.0.0/23}}`,
		},
		"TenantRange": {
			reason: "A TenantConfig does not limit the range in the subnet.", kind: v1.KindTenantNetwork,
			spec:   `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.19}}}`,
			want:   "widen spec.Options.allocation_pool within cidr 10.0.0.0/24",
			follow: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {start: 10.0.0.10, end: 10.0.0.29}}}`,
		},
		"Widest": {
			reason: "0.0.0.0/7 has addresses that no network may have.",
			spec:   `{Options: {cidr: 1.0.0.0/8}}`,
			want:   "use a second network, because a subnet wider than cidr 1.0.0.0/8 has addresses for special purposes",
			follow: `{Options: {cidr: 1.0.0.0/8}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := parsed(t, tc.kind, tc.spec), parsed(t, tc.kind, tc.follow)
			s := before.V4
			if s == nil {
				s = before.V6
			}
			if got := s.GrowthAdvice(before); got != tc.want {
				t.Errorf("%s\ngot  %q\nwant %q", tc.reason, got, tc.want)
			}
			use := network.Usage{Pod: "red/web-0", Node: "node-1"}
			if before.V4 != nil {
				use.V4 = s.Start.Next()
			} else {
				use.V6 = s.Start.Next()
			}
			if err := network.CheckUpdate(before, after, []network.Usage{use}); err != nil {
				t.Errorf("%s\nadmission rejects the advice: %v", tc.reason, err)
			}
		})
	}
}

// parsed returns the network with this spec in YAML; a ClusterNetwork without a kind.
func parsed(t *testing.T, kind, spec string) *network.Network {
	t.Helper()
	if kind == "" {
		kind = v1.KindClusterNetwork
	}
	n, err := network.FromObject(object(t, kind, spec))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
