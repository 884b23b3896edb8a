// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// bridged is the output of Debian's bridge plugin for CNI 1.0.0.
const bridged = `{
	"cniVersion": "1.0.0",
	"interfaces": [
		{"name": "cni0", "mac": "02:00:00:00:00:0a"},
		{"name": "veth1", "mac": "02:00:00:00:00:0b"},
		{"name": "eth0", "mac": "02:00:00:00:00:0c", "sandbox": "/run/netns/a"}
	],
	"ips": [{"interface": 2, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
	"routes": [{"dst": "0.0.0.0/0"}],
	"dns": {"nameservers": ["10.1.0.1"]}
}`

// sample returns a record with an interface of a delegate and one of Patchbay.
func sample() *Record {
	return &Record{
		Netns: "/run/netns/a",
		Interfaces: []Interface{
			{Name: "eth0", Network: network.Network{Type: "bridge"}, Result: json.RawMessage(bridged)},
			{
				Name: "net1", MAC: "02:00:00:00:00:0d", MTU: 1450,
				V4: netip.MustParsePrefix("10.2.0.5/24"), V6: netip.MustParsePrefix("fd02::5/64"),
				Network: network.Network{
					Type: "ipvlan",
					V4:   sampleSubnet("10.2.0.0/24", "10.9.0.0/16", "10.2.0.1"),
					V6:   sampleSubnet("fd02::/64", "fd09::/48", "fd02::1"),
				},
				Proutes: []network.Route{{Dst: netip.MustParsePrefix("10.8.0.0/16"), Gateway: netip.MustParseAddr("10.2.0.1")}},
			},
		},
	}
}

// sampleSubnet returns a subnet with a route.
func sampleSubnet(cidr, dst, gateway string) *network.Subnet {
	return &network.Subnet{
		CIDR:   netip.MustParsePrefix(cidr),
		Routes: []network.Route{{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(gateway)}},
	}
}

// The result has the keys of each version of the specification, and the CNI library reads it.
func TestMergeVersions(t *testing.T) {
	t.Parallel()
	const (
		interfaces = `[{"mac":"02:00:00:00:00:0a","name":"cni0"},{"mac":"02:00:00:00:00:0b","name":"veth1"},` +
			`{"mac":"02:00:00:00:00:0c","name":"eth0","sandbox":"/run/netns/a"},`
		own     = `{"mac":"02:00:00:00:00:0d","name":"net1","sandbox":"/run/netns/a"}]`
		ownMTU  = `{"mac":"02:00:00:00:00:0d","mtu":1450,"name":"net1","sandbox":"/run/netns/a"}]`
		ips     = `[{"address":"10.1.0.5/24","gateway":"10.1.0.1","interface":2},{"address":"10.2.0.5/24","interface":3},{"address":"fd02::5/64","interface":3}]`
		oldIPs  = `[{"address":"10.1.0.5/24","gateway":"10.1.0.1","interface":2,"version":"4"},{"address":"10.2.0.5/24","interface":3,"version":"4"},{"address":"fd02::5/64","interface":3,"version":"6"}]`
		routing = `[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.2.0.1"},{"dst":"fd09::/48","gw":"fd02::1"}]`
		dns     = `{"nameservers":["10.1.0.1"]}`
	)
	cases := map[string]struct{ interfaces, ips string }{
		"0.3.1": {interfaces + own, oldIPs},
		"0.4.0": {interfaces + own, oldIPs},
		"1.0.0": {interfaces + ownMTU, ips},
		"1.1.0": {interfaces + ownMTU, ips},
	}
	for version, tc := range cases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			merged, err := mergeResults(sample())
			if err != nil {
				t.Fatal(err)
			}
			r, err := merged.GetAsVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				"cniVersion": `"` + version + `"`, "interfaces": tc.interfaces, "ips": tc.ips, "routes": routing, "dns": dns,
			}
			if diff := cmp.Diff(want, canonical(t, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if _, err := create.Create(version, data); err != nil {
				t.Errorf("the CNI library rejects it: %v", err)
			}
		})
	}
}

// canonical returns JSON with sorted keys.
func canonical(t *testing.T, in map[string]json.RawMessage) map[string]string {
	t.Helper()
	out := map[string]string{}
	for key, raw := range in {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[key] = string(data)
	}
	return out
}

// A delegate's result gets the Pod's interface and the missing indexes.
func TestMergeDelegates(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, result, want string }{
		"OldResult": {
			"A result of CNI 0.2.0 has neither interfaces nor indexes.",
			`{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24"}]}`,
			`{"cniVersion":"1.1.0","interfaces":[{"mac":"m","mtu":9,"name":"eth0","sandbox":"/run/netns/a"}],"ips":[{"address":"10.1.0.5/24","interface":0}]}`,
		},
		"NoIndex": {
			"An address without an index belongs to the Pod's interface.",
			`{"cniVersion":"1.0.0","interfaces":[{"name":"v"},{"name":"eth0","sandbox":"s"}],"ips":[{"address":"10.1.0.5/24"}]}`,
			`{"cniVersion":"1.1.0","interfaces":[{"name":"v"},{"name":"eth0","sandbox":"s"}],"ips":[{"address":"10.1.0.5/24","interface":1}]}`,
		},
		"Nothing": {
			"The result always has the Pod's interface.",
			`{"cniVersion":"1.0.0"}`,
			`{"cniVersion":"1.1.0","interfaces":[{"mac":"m","mtu":9,"name":"eth0","sandbox":"/run/netns/a"}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := mergeResults(&Record{Netns: "/run/netns/a", Interfaces: []Interface{
				{Name: "eth0", MAC: "m", MTU: 9, Result: json.RawMessage(tc.result)},
			}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
