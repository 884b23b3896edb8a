// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// A Pod that requests no interface gets the first default network that exists.
func TestAddDefaultNetwork(t *testing.T) {
	t.Parallel()
	refs := network.DefaultRefs("ns")
	cases := map[string]struct {
		reason     string
		annotation string
		existing   []int
		want       []string
	}{
		"DanmNet":        {"The DanmNet of the namespace comes first.", "", []int{0, 1, 2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.1/29"}},
		"TenantNetwork":  {"The TenantNetwork comes second.", "", []int{1, 2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.9/29"}},
		"ClusterNetwork": {"The ClusterNetwork comes last.", "", []int{2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.17/29"}},
		"EmptyList":      {"An empty list counts as no annotation.", "[]", []int{2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.17/29"}},
	}
	subnets := []*network.Subnet{
		subnet("10.1.0.0/29", "10.1.0.1", "10.1.0.6"), subnet("10.1.0.8/29", "10.1.0.9", "10.1.0.14"),
		subnet("10.1.0.16/29", "10.1.0.17", "10.1.0.22"),
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.pod(tc.annotation)
			for _, i := range tc.existing {
				env.add(network.Network{Ref: refs[i], ID: "d", Type: "ipvlan", V4: subnets[i]})
			}
			result, err := env.mustStart(t).Add(context.Background(), env.sandbox("a"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines(result)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
