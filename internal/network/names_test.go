// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestInterfaceNames(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, scheme, ifName string
		prefixes               []string
		want                   []string
		refused                []string
	}{
		"None":       {reason: "Without interfaces there are no names.", ifName: "eth0"},
		"First":      {reason: "The runtime expects CNI_IFNAME as the first name.", ifName: "eth0", prefixes: []string{"blue"}, want: []string{"eth0"}},
		"Indexed":    {reason: "A name is the prefix and the index in the list.", ifName: "eth0", prefixes: []string{"eth", "blue", "", "eth"}, want: []string{"eth0", "blue1", "eth2", "eth3"}},
		"SamePrefix": {reason: "The index distinguishes interfaces with the same prefix.", ifName: "eth0", prefixes: []string{"a", "a", "a"}, want: []string{"eth0", "a1", "a2"}},
		"Legacy":     {reason: "In the legacy scheme the prefix is the name.", scheme: network.NamingSchemeLegacy, ifName: "eth0", prefixes: []string{"eth", "blue", "red"}, want: []string{"eth0", "blue", "red"}},
		"LegacyTwice": {
			reason: "Two networks with one prefix have the same legacy name.", scheme: network.NamingSchemeLegacy, ifName: "eth0", prefixes: []string{"eth", "blue", "blue"},
			refused: []string{`interfaces[2]: Invalid value: "blue": must not be the name of interfaces[1] too: use a network with another container_prefix, because names are made from it`},
		},
		"LegacyDefault": {
			reason: "Two networks without a prefix have the same legacy name.", scheme: network.NamingSchemeLegacy, ifName: "eth0", prefixes: []string{"", "", ""},
			refused: []string{"interfaces[2]:", `"eth"`},
		},
		"IndexMakesOther": {
			reason: "A prefix that ends with a digit must not clash with an index.", ifName: "eth0",
			prefixes: []string{"e", "b", "b", "b", "b", "b", "b", "b", "b", "b", "b", "b1", "b"}, // b1 at 11 is b111
			want:     []string{"eth0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b111", "b12"},
		},
		"Clash": {
			reason: "CNI_IFNAME may be the name of another interface.", ifName: "blue1", prefixes: []string{"x", "blue"},
			refused: []string{"interfaces[1]:", `"blue1"`, "interfaces[0]"},
		},
		"Fits":     {reason: "A name may have 15 bytes.", ifName: "eth0", prefixes: []string{"x", "abcdefghijklmn"}, want: []string{"eth0", "abcdefghijklmn1"}},
		"TooLong":  {reason: "A name of 16 bytes is too long.", ifName: "eth0", prefixes: append(make([]string, 10), "abcdefghijklmn"), refused: []string{"interfaces[10]:", `"abcdefghijklmn10"`, "15 bytes"}},
		"BadFirst": {reason: "CNI_IFNAME comes from the runtime and is checked.", ifName: "a/b", prefixes: []string{"x"}, refused: []string{"interfaces[0]:"}},
		"NoFirst":  {reason: "CNI_IFNAME comes from the runtime and is checked.", prefixes: []string{"x"}, refused: []string{"interfaces[0]:"}},
		"Scheme":   {reason: "The configuration may have a typing error.", scheme: "Legacy", ifName: "eth0", refused: []string{`got "Legacy"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.InterfaceNames(tc.scheme, tc.ifName, tc.prefixes)
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nInterfaceNames: got %v, %v", tc.reason, got, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nInterfaceNames: got %q, want %q in it", tc.reason, err, part)
				}
			}
			if diff := cmp.Diff(tc.want, got, models()); diff != "" {
				t.Errorf("%s\nInterfaceNames: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
