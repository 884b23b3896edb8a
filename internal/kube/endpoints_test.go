// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"testing"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		want         netip.Addr
		wrong        bool
	}{
		"Empty":   {reason: "The interface has no address.", text: ""},
		"None":    {reason: "DANM writes none for no address.", text: "none"},
		"Prefix":  {reason: "Our daemon writes a prefix length.", text: "10.0.0.5/24", want: netip.MustParseAddr("10.0.0.5")},
		"Address": {reason: "An address may have no prefix length.", text: "fd00::5", want: netip.MustParseAddr("fd00::5")},
		"Rubbish": {reason: "An unreadable address must be an error, or the address would be freed.", text: "10.0.0.500/24", wrong: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseAddress(tc.text)
			if got != tc.want || (err != nil) != tc.wrong {
				t.Errorf("%s: got %s, %v", tc.reason, got, err)
			}
		})
	}
}
