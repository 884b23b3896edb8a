// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// podNetworks returns a function that finds the networks of the test.
func podNetworks(t *testing.T) func(network.Ref) *network.Network {
	t.Helper()
	specs := map[network.Ref]string{
		{Kind: v1.KindClusterNetwork, Name: "storage"}:             `{Options: {host_device: ens4, cidr: 10.0.0.0/24, container_prefix: stor, static_pool: [{start: 10.0.0.5, end: 10.0.0.99}]}}`,
		{Kind: v1.KindClusterNetwork, Name: "closed"}:              `{AllowedTenants: [other], Options: {host_device: ens4}}`,
		{Kind: v1.KindClusterNetwork, Name: "long"}:                `{Options: {host_device: ens4, container_prefix: abcdefghijklmn}}`,
		{Kind: v1.KindClusterNetwork, Name: "flannel"}:             `{NetworkType: flannel}`,
		{Kind: v1.KindClusterNetwork, Name: "going"}:               `{Options: {host_device: ens4}}`,
		{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "own"}: `{Options: {host_device: ens4}}`,
	}
	return func(ref network.Ref) *network.Network {
		text, ok := specs[ref]
		if !ok {
			return nil
		}
		n, err := network.FromObject(object(t, ref.Kind, text))
		if err != nil {
			t.Fatal(err)
		}
		n.Ref, n.Deleting = ref, ref.Name == "going"
		return n
	}
}

func TestCheckPod(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, value   string
		warned, refused []string
		scheme          string
	}{
		"Good":        {reason: "A Pod may have two interfaces.", value: `[{"clusterNetwork": "storage", "ip": "dynamic"}, {"clusterNetwork": "storage", "ip": "10.0.0.7"}]`},
		"Empty":       {reason: "A Pod with an empty list gets the default network.", value: `[]`},
		"JSON":        {reason: "The annotation must be JSON.", value: `{`, refused: []string{"metadata.annotations[danm.io/interfaces]", "must be JSON"}},
		"UnknownKey":  {reason: "A key with a typing error must not be ignored.", value: `[{"clusterNetwrok": "x"}]`, refused: []string{"[danm.io/interfaces][0]", "clusterNetwrok"}},
		"TwoNetworks": {reason: "An interface is in one network.", value: `[{"clusterNetwork": "a", "network": "b"}]`, refused: []string{"[0].clusterNetwork"}},
		"Tenant":      {reason: "The network is for another namespace.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "closed"}]`, refused: []string{"[danm.io/interfaces][1]", "ClusterNetwork/closed", "must contain the Pod's namespace ns"}},
		"Outside":     {reason: "A static address must be in the subnet.", value: `[{"clusterNetwork": "storage", "ip": "10.0.1.7"}]`, refused: []string{"[0].ip", "10.0.1.7", "must be in the network's subnet 10.0.0.0/24"}},
		"StaticPool":  {reason: "A static address must be in the static pool.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage", "ip": "10.0.0.100"}]`, refused: []string{"[danm.io/interfaces][1].ip", `"10.0.0.100"`, "static_pool, which is 10.0.0.5-10.0.0.99"}},
		"Node":        {reason: "A static address must not be that of a node.", value: `[{"clusterNetwork": "storage", "ip": "10.0.0.7"}, {"clusterNetwork": "storage", "ip": "10.0.0.77/24"}]`, refused: []string{"[1].ip", `"10.0.0.77"`, "must not be an address of a node"}},
		"NoSubnet":    {reason: "The network has no subnet of the family.", value: `[{"clusterNetwork": "storage", "ip6": "dynamic"}]`, refused: []string{"[0].ip6", "no net6"}},
		"LongName":    {reason: "A name of 16 bytes is too long.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}]`, refused: []string{"[danm.io/interfaces][10]", "abcdefghijklmn10", "15 bytes"}},
		"Twice":       {reason: "Legacy names have no index.", scheme: network.NamingSchemeLegacy, value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}]`, refused: []string{"[danm.io/interfaces][2]", "stor", "interface 1 too"}},
		"ToCome":      {reason: "A missing network may be created later.", value: `[{"clusterNetwork": "later"}, {"network": "later"}]`, warned: []string{"[0]", "ClusterNetwork/later does not exist yet", "DanmNet/ns/later"}},
		"Going":       {reason: "A network that is being deleted may be created again.", value: `[{"clusterNetwork": "going"}]`, warned: []string{"ClusterNetwork/going is being deleted"}},
		"OtherNS":     {reason: "A request cannot name a network of another namespace.", value: `[{"tenantNetwork": "other/own"}]`, refused: []string{"[0].tenantNetwork", "other/own"}},
		"Unassigned":  {reason: "The tenant has set an attribute that is not assigned.", value: `[{"tenantNetwork": "own"}]`, warned: []string{"TenantNetwork/ns/own", "host_device"}},
		"PluginIP":    {reason: "Another plugin manages addresses itself.", value: `[{"clusterNetwork": "flannel", "ip": "10.0.0.7"}]`, refused: []string{"[0].ip", "CNI plugin flannel"}},
		"PluginRoute": {reason: "Another plugin manages routes itself.", value: `[{"clusterNetwork": "flannel", "ip": "dynamic", "proutes": {"10.9.0.0/16": "10.0.0.1"}}]`, refused: []string{"[0].proutes", "CNI plugin flannel"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warnings, err := network.CheckPod("ns", tc.scheme, map[string]string{v1.InterfacesAnnotation: tc.value}, podNetworks(t), func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.77") })
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nCheckPod: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nCheckPod: got %q, want %q in it", tc.reason, err, part)
				}
			}
			if (len(warnings) > 0) != (tc.warned != nil) {
				t.Errorf("%s\nCheckPod warns %q", tc.reason, warnings)
			}
			for _, part := range tc.warned {
				if !strings.Contains(strings.Join(warnings, "\n"), part) {
					t.Errorf("%s\nCheckPod warns %q, want %q", tc.reason, warnings, part)
				}
			}
		})
	}
}
