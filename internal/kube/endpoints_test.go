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
		"Empty":   {reason: "an interface without", text: ""},
		"None":    {reason: "DANM's word for it", text: "none"},
		"Prefix":  {reason: "as we write it", text: "10.0.0.5/24", want: netip.MustParseAddr("10.0.0.5")},
		"Address": {reason: "without a length", text: "fd00::5", want: netip.MustParseAddr("fd00::5")},
		"Rubbish": {reason: "must not be taken for none: the address would be freed", text: "10.0.0.500/24", wrong: true},
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
