// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newFilledCache returns a Cache that has read these networks.
func newFilledCache(networks map[network.Ref]kube.ParsedNetwork) *Cache {
	c := &Cache{models: networkModels{byRef: networks}}
	c.loaded.Store(true)
	return c
}

// The node's report tells an invalid default network from none: Pods without an annotation do not start then.
func TestDefaultNetwork(t *testing.T) {
	t.Parallel()
	ref := network.Ref{Kind: v1.KindClusterNetwork, Name: "default"}
	valid, invalid := &network.Network{Ref: ref}, errors.New("spec.NetworkID must be set")
	cases := map[string]struct {
		reason   string
		networks map[network.Ref]kube.ParsedNetwork
		want     *network.Network
		err      error
	}{
		"Valid":   {"It exists.", map[network.Ref]kube.ParsedNetwork{ref: {Network: valid}}, valid, nil},
		"Invalid": {"ADD fails with this error.", map[network.Ref]kube.ParsedNetwork{ref: {Err: invalid}}, nil, invalid},
		"None":    {"Another network exists.", map[network.Ref]kube.ParsedNetwork{{Kind: v1.KindDanmNet, Namespace: "ns", Name: "default"}: {Network: valid}}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newFilledCache(tc.networks).DefaultNetwork()
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" || !errors.Is(err, tc.err) {
				t.Errorf("%s: error %v, want %v; -want +got:\n%s", tc.reason, err, tc.err, diff)
			}
		})
	}
}

// Only the files of ClusterNetworks for other namespaces are forbidden. A tenant's network forbids none: it would
// take the configuration of the cluster's Pods from all others.
func TestForbiddenIDs(t *testing.T) {
	t.Parallel()
	networks := map[network.Ref]kube.ParsedNetwork{}
	for _, n := range []network.Network{
		{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "mgmt"}, ID: "mgmt", Type: "bridge", AllowedTenants: []string{"infra"}},
		{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "all"}, ID: "flannel", Type: "flannel"},
		{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "own"}, ID: "own", Type: "macvlan", AllowedTenants: []string{"infra"}},
		{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "t"}, ID: "pods", Type: "bridge"},
		{Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "d"}, ID: "pods", Type: "bridge"},
	} {
		networks[n.Ref] = kube.ParsedNetwork{Network: &n}
	}
	cases := map[string]struct {
		reason, namespace string
		want              map[string]bool
	}{
		"Other":   {"The namespace may not use the network mgmt.", "ns", map[string]bool{"mgmt": true}},
		"Allowed": {"The namespace may use all.", "infra", map[string]bool{}},
		"Report":  {"The node's report is for no namespace.", "", map[string]bool{"mgmt": true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newFilledCache(networks).ForbiddenIDs(t.Context(), tc.namespace)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%s: error %v; -want +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}
