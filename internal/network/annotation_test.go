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
		"Empty": {reason: "A Pod with an empty list gets the default network.", value: ` [ ] `},
		"EachKind": {
			reason: "Each kind has its key, and the order is the list's.",
			value:  `[{"network":"a"},{"tenantNetwork":"b"},{"clusterNetwork":"c"}]`,
			want: []network.InterfaceRequest{
				{Kind: v1.KindDanmNet, Network: "a"}, {Kind: v1.KindTenantNetwork, Network: "b"}, {Kind: v1.KindClusterNetwork, Network: "c"},
			},
		},
		"EmptyReferences": {
			reason: "DANM's clients write all keys with empty values.",
			value:  `[{"network":"","tenantNetwork":"","clusterNetwork":"c","ip":"","ip6":""}]`,
			want:   []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c"}},
		},
		"Dynamic": {
			reason: "Addresses of both families may be dynamic.", value: `[{"clusterNetwork":"c","ip":"dynamic","ip6":"dynamic"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: dynamic, V6: dynamic}},
		},
		"None": {
			reason: "\"none\" requests no address.", value: `[{"clusterNetwork":"c","ip":"none","ip6":"none"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", DeclinesAddress: true}},
		},
		"Static": {
			reason: "A static address needs no mask.", value: `[{"clusterNetwork":"c","ip":"10.0.0.5","ip6":"FD00::5"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: static("10.0.0.5"), V6: static("fd00::5")}},
		},
		"StaticMask": {
			reason: "The mask is ignored.", value: `[{"clusterNetwork":"c","ip":"10.0.0.5/8","ip6":"fd00::5/0"}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", V4: static("10.0.0.5"), V6: static("fd00::5")}},
		},
		"Proutes": {
			reason: "Destinations are masked and ordered, and null means no routes.",
			value:  `[{"clusterNetwork":"c","proutes":{"10.9.0.0/16":"10.0.0.2","10.8.1.1/16":"10.0.0.1"},"proutes6":null}]`,
			want: []network.InterfaceRequest{{Kind: v1.KindClusterNetwork, Network: "c", Proutes: []network.Route{
				{Dst: prefix("10.8.0.0/16"), Gateway: addr("10.0.0.1")}, {Dst: prefix("10.9.0.0/16"), Gateway: addr("10.0.0.2")},
			}}},
		},
		"SameNetworkTwice": {
			reason: "A Pod may have two interfaces in one network.", value: `[{"clusterNetwork":"c"},{"clusterNetwork":"c"}]`,
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

func TestParseInterfacesErrors(t *testing.T) {
	t.Parallel()
	const at = "metadata.annotations[danm.io/interfaces]"
	cases := map[string]struct {
		reason, value string
		want          []string
	}{
		"NoValue":       {reason: "An empty text is not a list.", value: ``, want: []string{at + ":", "must be JSON", "byte 0"}},
		"Null":          {reason: "A template may render null.", value: `null`, want: []string{at + ":", "use []"}},
		"Object":        {reason: "One interface must be in a list too.", value: `{"clusterNetwork":"a"}`, want: []string{at + ":", "JSON object", "must be a JSON list"}},
		"String":        {reason: "A string is not a list.", value: `"a"`, want: []string{at + ":", "must be a JSON list"}},
		"Cut":           {reason: "The message has the byte at which the text ends.", value: `[{"clusterNetwork":"a"}`, want: []string{at + ":", "byte 23"}},
		"CutAtBothEnds": {reason: "The excerpt shows where text is left out.", value: `[{"clusterNetwork":"a","ip":"none"},,{"clusterNetwork":"storage"}]`, want: []string{at + `: Invalid value: "…`, `…": must be JSON`}},
		"Comma":         {reason: "The message has the byte with the error.", value: `[{"clusterNetwork":"a",}]`, want: []string{at + ":", "byte 23", "invalid character '}'"}},
		"Garbage":       {reason: "The text must end after the list.", value: `[] x`, want: []string{at + ":", "must end with the JSON list", "byte 2"}},
		"SecondList":    {reason: "The text must end after the list.", value: `[][]`, want: []string{at + ":", "must end with the JSON list"}},
		"EntryString":   {reason: "An entry must be an object.", value: `["a"]`, want: []string{at + "[0]:", "JSON object"}},
		"EntryNull":     {reason: "An entry must be an object.", value: `[{"clusterNetwork":"a"},null]`, want: []string{at + "[1]:", "JSON object"}},
		"UnknownKey":    {reason: "A key with a typing error must not be ignored.", value: `[{"clusterNetwork":"a","ipv6":"dynamic"}]`, want: []string{at + `[0]: Invalid value: "ipv6": must be one of the keys network, tenantNetwork, clusterNetwork, ip, ip6, proutes, proutes6: did you mean ip6?`}},
		"OtherKey":      {reason: "A key like no other has no suggestion.", value: `[{"clusterNetwork":"a","address":"dynamic"}]`, want: []string{at + `[0]: Invalid value: "address": must be one of the keys network, tenantNetwork, clusterNetwork, ip, ip6, proutes, proutes6`}},
		"OtherCase":     {reason: "Keys are case-sensitive.", value: `[{"clusternetwork":"a"}]`, want: []string{at + `[0]: Invalid value: "clusternetwork": must be one of`, "did you mean clusterNetwork?"}},
		"KeyTwice":      {reason: "The value of a repeated key is ambiguous.", value: `[{"clusterNetwork":"a","ip":"none","ip":"dynamic"}]`, want: []string{at + `[0]: Invalid value: "ip": must be set once, and is set twice: leave one out`}},
		"RouteTwice":    {reason: "The value of a repeated key is ambiguous.", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0/8":"1.1.1.1","10.0.0.0/8":"2.2.2.2"}}]`, want: []string{at + `[0]: Invalid value: "proutes.10.0.0.0/8": must be set once, and is set twice: leave one out`}},
		"WrongType":     {reason: "A number is not an address.", value: `[{"clusterNetwork":"a","ip":5}]`, want: []string{at + "[0].ip:", `\"ip\":5}`, "JSON number", "must be a string"}},
		"RoutesList":    {reason: "Routes must be an object.", value: `[{"clusterNetwork":"a","proutes":[]}]`, want: []string{at + "[0].proutes:", "JSON array"}},
		"NoReference":   {reason: "An entry must name a network.", value: `[{"ip":"dynamic"}]`, want: []string{at + "[0]:", "Required", "set clusterNetwork, tenantNetwork or network"}},
		"TwoReferences": {reason: "An interface is in one network.", value: `[{"network":"a","clusterNetwork":"b"}]`, want: []string{at + "[0].clusterNetwork:", `network "a"`}},
		"AllReferences": {reason: "The message names both other references.", value: `[{"network":"a","tenantNetwork":"b","clusterNetwork":"c"}]`, want: []string{"[0].tenantNetwork:", "[0].clusterNetwork:"}},
		"PathInName":    {reason: "A path is not a name.", value: `[{"clusterNetwork":"../etc"}]`, want: []string{at + "[0].clusterNetwork:", `"../etc"`}},
		"UpperCaseName": {reason: "Object names are in lower case.", value: `[{"network":"Blue"}]`, want: []string{at + "[0].network:", "lower case"}},
		"BadIP":         {reason: "The message has the three accepted forms.", value: `[{"clusterNetwork":"a","ip":"10.0.0.300"}]`, want: []string{at + "[0].ip:", `"10.0.0.300"`, `"dynamic", "none"`}},
		"SixInIP":       {reason: "IPv6 addresses belong into ip6.", value: `[{"clusterNetwork":"a","ip":"fd00::1"}]`, want: []string{at + "[0].ip:", "IPv4 address"}},
		"FourInIP6":     {reason: "IPv4 addresses belong into ip.", value: `[{"clusterNetwork":"a","ip6":"10.0.0.1"}]`, want: []string{at + "[0].ip6:", "IPv6 address"}},
		"MappedIP6":     {reason: "An IPv4-mapped address is not an IPv6 address.", value: `[{"clusterNetwork":"a","ip6":"::ffff:10.0.0.1"}]`, want: []string{at + "[0].ip6:"}},
		"Zone":          {reason: "A zone has no meaning in a Pod.", value: `[{"clusterNetwork":"a","ip6":"fe80::1%eth0"}]`, want: []string{at + "[0].ip6:"}},
		"BadMask":       {reason: "An ignored mask must be valid.", value: `[{"clusterNetwork":"a","ip":"10.0.0.1/33"}]`, want: []string{at + "[0].ip:"}},
		"NoMask":        {reason: "An ignored mask must be valid.", value: `[{"clusterNetwork":"a","ip":"10.0.0.1/"}]`, want: []string{at + "[0].ip:"}},
		"UpperDynamic":  {reason: "Values are case-sensitive.", value: `[{"clusterNetwork":"a","ip":"Dynamic"}]`, want: []string{at + "[0].ip:"}},
		"BadDst":        {reason: "A destination must be a subnet.", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0":"10.0.0.1"}}]`, want: []string{at + "[0].proutes[10.0.0.0]:", "prefix length"}},
		"BadGateway":    {reason: "A gateway must be an address.", value: `[{"clusterNetwork":"a","proutes6":{"::/0":"10.0.0.1"}}]`, want: []string{at + "[0].proutes6[::/0]:", "IPv6 address"}},
		"SameDst":       {reason: "The kernel rejects the second route.", value: `[{"clusterNetwork":"a","proutes":{"10.0.0.0/8":"1.1.1.1","10.1.0.0/8":"1.1.1.1"}}]`, want: []string{at + "[0].proutes[10.1.0.0/8]:", "must not have the same destination as 10.0.0.0/8"}},
		"EachEntry":     {reason: "All faults are reported at once.", value: `[{"clusterNetwork":"a","ip":"x"},{"network":"b"},{"tenantNetwork":"c","ip6":"y"}]`, want: []string{"[0].ip:", "[2].ip6:"}},
		"TooMany":       {reason: "The number of interfaces is bounded.", value: "[" + strings.Repeat("{},", 256) + "{}]", want: []string{at + ":", "256"}},
		"TooLong":       {reason: "The size of the annotation is bounded.", value: "[" + strings.Repeat(" ", 1<<16) + "]", want: []string{at + ":", "Too long"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.ParseInterfaces(map[string]string{v1.InterfacesAnnotation: tc.value})
			if !errors.Is(err, network.ErrInvalid) || got != nil {
				t.Fatalf("%s\nParseInterfaces: got %v, %v, want an error", tc.reason, got, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nParseInterfaces: got %q, want %q in it", tc.reason, err, part)
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
		t.Errorf("other annotation: got %v, %v, want nothing", got, err)
	}
	same := map[string]string{v1.InterfacesAnnotation: a, v1.LegacyInterfacesAnnotation: a}
	if got, err := network.ParseInterfaces(same); err != nil || len(got) != 1 {
		t.Errorf("both, the same: got %v, %v, want one interface", got, err)
	}
	differ := map[string]string{v1.InterfacesAnnotation: a, v1.LegacyInterfacesAnnotation: b}
	if _, err := network.ParseInterfaces(differ); err == nil || !strings.Contains(err.Error(), "leave this one out") {
		t.Errorf("both, different: got %v, want an error", err)
	}
}
