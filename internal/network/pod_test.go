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

// podNetworks are what the Pods of the test may ask for.
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
		"Good":        {reason: "Two interfaces.", value: `[{"clusterNetwork": "storage", "ip": "dynamic"}, {"clusterNetwork": "storage", "ip": "10.0.0.7"}]`},
		"Empty":       {reason: "The default network.", value: `[]`},
		"JSON":        {reason: "Not a list.", value: `{`, refused: []string{"metadata.annotations[danm.io/interfaces]", "is not JSON"}},
		"UnknownKey":  {reason: "A slip.", value: `[{"clusterNetwrok": "x"}]`, refused: []string{"[danm.io/interfaces][0]", "clusterNetwrok"}},
		"TwoNetworks": {reason: "One interface, one network.", value: `[{"clusterNetwork": "a", "network": "b"}]`, refused: []string{"[0].clusterNetwork"}},
		"Tenant":      {reason: "Not for this namespace.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "closed"}]`, refused: []string{"[danm.io/interfaces][1]", "ClusterNetwork/closed", "namespace ns may not attach"}},
		"Outside":     {reason: "Not in the subnet.", value: `[{"clusterNetwork": "storage", "ip": "10.0.1.7"}]`, refused: []string{"[0].ip", "10.0.1.7", "outside the network's subnet 10.0.0.0/24"}},
		"StaticPool":  {reason: "In the subnet, where the netadmin wants none.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage", "ip": "10.0.0.100"}]`, refused: []string{"[danm.io/interfaces][1].ip", `"10.0.0.100"`, "static_pool, which is 10.0.0.5-10.0.0.99"}},
		"Node":        {reason: "A node's own.", value: `[{"clusterNetwork": "storage", "ip": "10.0.0.7"}, {"clusterNetwork": "storage", "ip": "10.0.0.77/24"}]`, refused: []string{"[1].ip", `"10.0.0.77"`, "is a node's own"}},
		"NoSubnet":    {reason: "Nothing to take from.", value: `[{"clusterNetwork": "storage", "ip6": "dynamic"}]`, refused: []string{"[0].ip6", "no net6"}},
		"LongName":    {reason: "16 bytes.", value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}, {"clusterNetwork": "long"}]`, refused: []string{"[danm.io/interfaces][10]", "abcdefghijklmn10", "15 bytes"}},
		"Twice":       {reason: "Legacy names have no index.", scheme: network.NamingSchemeLegacy, value: `[{"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}, {"clusterNetwork": "storage"}]`, refused: []string{"[danm.io/interfaces][2]", "stor", "interface 1 already"}},
		"ToCome":      {reason: "May be created later.", value: `[{"clusterNetwork": "later"}, {"network": "later"}]`, warned: []string{"[0]", "ClusterNetwork/later does not exist yet", "DanmNet/ns/later"}},
		"Going":       {reason: "May be made again.", value: `[{"clusterNetwork": "going"}]`, warned: []string{"ClusterNetwork/going is being deleted"}},
		"OtherNS":     {reason: "No reference reaches into another namespace.", value: `[{"tenantNetwork": "other/own"}]`, refused: []string{"[0].tenantNetwork", "other/own"}},
		"Unassigned":  {reason: "A tenant's own wish.", value: `[{"tenantNetwork": "own"}]`, warned: []string{"TenantNetwork/ns/own", "host_device"}},
		"PluginIP":    {reason: "Nobody can promise it.", value: `[{"clusterNetwork": "flannel", "ip": "10.0.0.7"}]`, refused: []string{"[0].ip", "CNI plugin flannel"}},
		"PluginRoute": {reason: "Nor that.", value: `[{"clusterNetwork": "flannel", "ip": "dynamic", "proutes": {"10.9.0.0/16": "10.0.0.1"}}]`, refused: []string{"[0].proutes", "CNI plugin flannel"}},
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
					t.Errorf("%s\nCheckPod: got %q, want it to say %q", tc.reason, err, part)
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
