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

func TestParseInterfaces(t *testing.T) {
	t.Parallel()
	dynamic := network.AddressRequest{Dynamic: true}
	static := func(s string) network.AddressRequest { return network.AddressRequest{Static: addr(s)} }
	cases := map[string]struct {
		reason string
		value  string
		want   []network.InterfaceRequest
	}{
		"Empty": {reason: "The default network.", value: ` [ ] `},
		"EachKind": {
			reason: "One key per kind, in the list's order.",
			value:  `[{"network":"a"},{"tenantNetwork":"b"},{"clusterNetwork":"c"}]`,
			want: []network.InterfaceRequest{
				{Kind: v1.KindDanmNet, Network: "a"}, {Kind: v1.KindTenantNetwork, Network: "b"}, {Kind: v1.KindClusterNetwork, Network: "c"},
			},
		},
		"EmptyReferences": {
			reason: "DANM's clients write all keys.",
			value:  `[{"network":"","tenantNetwork":"","clusterNetwork":"c","ip":"","ip6":""}]`,
			want:   []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c"}},
		},
		"Dynamic": {
			reason: "Both families.", value: `[{"clusterNetwork":"c","ip":"dynamic","ip6":"dynamic"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: dynamic, V6: dynamic}},
		},
		"None": {
			reason: "None is nothing.", value: `[{"clusterNetwork":"c","ip":"none","ip6":"none"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c"}},
		},
		"Static": {
			reason: "Without a mask.", value: `[{"clusterNetwork":"c","ip":"10.0.0.5","ip6":"FD00::5"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: static("10.0.0.5"), V6: static("fd00::5")}},
		},
		"StaticMask": {
			reason: "The mask is ignored.", value: `[{"clusterNetwork":"c","ip":"10.0.0.5/8","ip6":"fd00::5/0"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: static("10.0.0.5"), V6: static("fd00::5")}},
		},
		"Proutes": {
			reason: "Masked and ordered; null is none.",
			value:  `[{"clusterNetwork":"c","proutes":{"10.9.0.0/16":"10.0.0.2","10.8.1.1/16":"10.0.0.1"},"proutes6":null}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", Proutes: []network.Route{
				{Dst: prefix("10.8.0.0/16"), Gateway: addr("10.0.0.1")}, {Dst: prefix("10.9.0.0/16"), Gateway: addr("10.0.0.2")},
			}}},
		},
		"SameNetworkTwice": {
			reason: "Two interfaces in one network.", value: `[{"clusterNetwork":"c"},{"clusterNetwork":"c"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c"}, {Kind: v1.KindClusterNetwork, Network: "c"}},
		},
	}
	for name, tc := range cases {
		for _, key := range []string{v1.InterfacesAnnotation, v1.LegacyInterfacesAnnotation} {
			t.Run(name+"/"+key, func(t *testing.T) {
				t.Parallel()
				got, err := network.ParseInterfaces(map[string]string{key: tc.value, "other": "x"})
				if err != nil {
					t.Fatalf("%s\nParseInterfaces: %v", tc.reason, err)
				}
				if diff := cmp.Diff(tc.want, got, models()); diff != "" {
					t.Errorf("%s\nParseInterfaces: -want +got\n%s", tc.reason, diff)
				}
			})
		}
	}
}

func TestParseInterfacesRefuses(t *testing.T) {
	t.Parallel()
	const at = "metadata.annotations[danm.io/interfaces]"
	cases := map[string]struct {
		reason, value string
		want          []string
	}{
		"NoValue":       {reason: "Nothing is no list.", value: ``, want: []string{at + ":", "not JSON", "byte 0"}},
		"Null":          {reason: "A template that rendered nothing.", value: `null`, want: []string{at + ":", "use []"}},
		"Object":        {reason: "One interface is a list, too.", value: `{"clusterNetwork":"a"}`, want: []string{at + ":", "JSON object", "use a list"}},
		"String":        {reason: "Not a list.", value: `"a"`, want: []string{at + ":", "use a list"}},
		"Cut":           {reason: "The byte where it ends.", value: `[{"clusterNetwork":"a"}`, want: []string{at + ":", "byte 23"}},
		"Comma":         {reason: "The byte that is wrong.", value: `[{"clusterNetwork":"a",}]`, want: []string{at + ":", "byte 23", "invalid character '}'"}},
		"Garbage":       {reason: "Nothing may follow.", value: `[] x`, want: []string{at + ":", "more after", "byte 2"}},
		"SecondList":    {reason: "Nothing may follow.", value: `[][]`, want: []string{at + ":", "more after"}},
		"EntryString":   {reason: "An entry is an object.", value: `["a"]`, want: []string{at + "[0]:", "JSON object"}},
		"EntryNull":     {reason: "An entry is an object.", value: `[{"clusterNetwork":"a"},null]`, want: []string{at + "[1]:", "JSON object"}},
		"UnknownKey":    {reason: "A typing error would be ignored silently.", value: `[{"clusterNetwork":"a","ipv6":"dynamic"}]`, want: []string{at + "[0]:", `unknown field "ipv6"`, "ip6"}},
		"OtherCase":     {reason: "Keys have one spelling.", value: `[{"clusternetwork":"a"}]`, want: []string{at + "[0]:", `unknown field "clusternetwork"`}},
		"KeyTwice":      {reason: "Which one would hold?", value: `[{"clusterNetwork":"a","ip":"none","ip":"dynamic"}]`, want: []string{at + "[0]:", `duplicate field "ip"`}},
		"RouteTwice":    {reason: "Which one would hold?", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0/8":"1.1.1.1","10.0.0.0/8":"2.2.2.2"}}]`, want: []string{at + "[0]:", `duplicate`}},
		"WrongType":     {reason: "A number is no address.", value: `[{"clusterNetwork":"a","ip":5}]`, want: []string{at + "[0].ip:", "JSON number", "use a string"}},
		"RoutesList":    {reason: "Routes are an object.", value: `[{"clusterNetwork":"a","proutes":[]}]`, want: []string{at + "[0].proutes:", "JSON array"}},
		"NoReference":   {reason: "Which network?", value: `[{"ip":"dynamic"}]`, want: []string{at + "[0]:", "Required", "network, tenantNetwork or clusterNetwork"}},
		"TwoReferences": {reason: "One interface, one network.", value: `[{"network":"a","clusterNetwork":"b"}]`, want: []string{at + "[0].clusterNetwork:", `"a" in network`}},
		"AllReferences": {reason: "Both others are named.", value: `[{"network":"a","tenantNetwork":"b","clusterNetwork":"c"}]`, want: []string{"[0].tenantNetwork:", "[0].clusterNetwork:"}},
		"PathInName":    {reason: "A name is a name.", value: `[{"clusterNetwork":"../etc"}]`, want: []string{at + "[0].clusterNetwork:", `"../etc"`}},
		"UpperCaseName": {reason: "No object has that name.", value: `[{"network":"Blue"}]`, want: []string{at + "[0].network:", "lower case"}},
		"BadIP":         {reason: "The three forms are named.", value: `[{"clusterNetwork":"a","ip":"10.0.0.300"}]`, want: []string{at + "[0].ip:", `"10.0.0.300"`, `"dynamic", "none"`}},
		"SixInIP":       {reason: "IPv6 has a key of its own.", value: `[{"clusterNetwork":"a","ip":"fd00::1"}]`, want: []string{at + "[0].ip:", "IPv4 address"}},
		"FourInIP6":     {reason: "IPv4 has a key of its own.", value: `[{"clusterNetwork":"a","ip6":"10.0.0.1"}]`, want: []string{at + "[0].ip6:", "IPv6 address"}},
		"MappedIP6":     {reason: "A mapped IPv4 address is not IPv6.", value: `[{"clusterNetwork":"a","ip6":"::ffff:10.0.0.1"}]`, want: []string{at + "[0].ip6:"}},
		"Zone":          {reason: "A zone means nothing in a Pod.", value: `[{"clusterNetwork":"a","ip6":"fe80::1%eth0"}]`, want: []string{at + "[0].ip6:"}},
		"BadMask":       {reason: "Ignored, but not any text.", value: `[{"clusterNetwork":"a","ip":"10.0.0.1/33"}]`, want: []string{at + "[0].ip:"}},
		"NoMask":        {reason: "Ignored, but not any text.", value: `[{"clusterNetwork":"a","ip":"10.0.0.1/"}]`, want: []string{at + "[0].ip:"}},
		"UpperDynamic":  {reason: "Words have one spelling.", value: `[{"clusterNetwork":"a","ip":"Dynamic"}]`, want: []string{at + "[0].ip:"}},
		"BadDst":        {reason: "A destination is a subnet.", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0":"10.0.0.1"}}]`, want: []string{at + "[0].proutes:", "prefix length"}},
		"BadGateway":    {reason: "A gateway is an address.", value: `[{"clusterNetwork":"a","proutes6":{"::/0":"10.0.0.1"}}]`, want: []string{at + "[0].proutes6[::/0]:", "IPv6 address"}},
		"SameDst":       {reason: "The kernel refuses the second.", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0/8":"1.1.1.1","10.1.0.0/8":"1.1.1.1"}}]`, want: []string{at + "[0].proutes:", "same subnet"}},
		"EachEntry":     {reason: "All faults at once.", value: `[{"clusterNetwork":"a","ip":"x"},{"network":"b"},{"tenantNetwork":"c","ip6":"y"}]`, want: []string{"[0].ip:", "[2].ip6:"}},
		"TooMany":       {reason: "No Pod has so many.", value: "[" + strings.Repeat("{},", 256) + "{}]", want: []string{at + ":", "256"}},
		"TooLong":       {reason: "Work is bounded.", value: "[" + strings.Repeat(" ", 1<<16) + "]", want: []string{at + ":", "Too long"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.ParseInterfaces(map[string]string{v1.InterfacesAnnotation: tc.value})
			if !errors.Is(err, network.ErrInvalid) || got != nil {
				t.Fatalf("%s\nParseInterfaces: got %v, %v, want a refusal", tc.reason, got, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nParseInterfaces: got %q, want it to say %q", tc.reason, err, part)
				}
			}
			if len(err.Error()) > 2000 {
				t.Errorf("ParseInterfaces: the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParseInterfacesPrefixes(t *testing.T) {
	t.Parallel()
	const a, b = `[{"clusterNetwork":"a"}]`, `[{"clusterNetwork":"b"}]`
	if got, err := network.ParseInterfaces(map[string]string{"x": a}); err != nil || len(got) != 0 {
		t.Errorf("no annotation of ours: got %v, %v, want nothing", got, err)
	}
	same := map[string]string{v1.InterfacesAnnotation: a, v1.LegacyInterfacesAnnotation: a}
	if got, err := network.ParseInterfaces(same); err != nil || len(got) != 1 {
		t.Errorf("both, the same: got %v, %v, want one interface", got, err)
	}
	differ := map[string]string{v1.InterfacesAnnotation: a, v1.LegacyInterfacesAnnotation: b}
	if _, err := network.ParseInterfaces(differ); err == nil || !strings.Contains(err.Error(), "keep one of the two") {
		t.Errorf("both, different: got %v, want a refusal", err)
	}
}
