// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestAddDefaultNetwork(t *testing.T) {
	t.Parallel()
	refs := network.DefaultRefs("ns")
	cases := map[string]struct {
		reason     string
		annotation string
		there      []int
		want       []string
	}{
		"DanmNet":        {"the namespace's own comes first", "", []int{0, 1, 2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.1/29"}},
		"TenantNetwork":  {"then the tenant's", "", []int{1, 2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.9/29"}},
		"ClusterNetwork": {"then the cluster's", "", []int{2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.17/29"}},
		"EmptyList":      {"an empty list is no annotation", "[]", []int{2}, []string{"eth0 /run/netns/a", "eth0 10.1.0.17/29"}},
	}
	subnets := []*network.Subnet{
		subnet("10.1.0.0/29", "10.1.0.1", "10.1.0.6"), subnet("10.1.0.8/29", "10.1.0.9", "10.1.0.14"),
		subnet("10.1.0.16/29", "10.1.0.17", "10.1.0.22"),
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.pod(tc.annotation)
			for _, i := range tc.there {
				w.add(network.Network{Ref: refs[i], ID: "d", Type: "ipvlan", V4: subnets[i]})
			}
			result, err := w.mustStart(t).Add(context.Background(), w.sandbox("a"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines(result)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
