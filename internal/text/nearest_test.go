// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/text"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"ipvlan", "macvlan", "sriov", "ip"}
	cases := map[string]struct{ reason, in, want string }{
		"Replaced": {"One letter is another.", "ipvlam", "ipvlan"},
		"Missing":  {"Two letters are missing.", "mcvln", "macvlan"},
		"Inserted": {"A letter is too many.", "sr-iov", "sriov"},
		"Between":  {"The nearest word wins over an earlier one.", "mipvlan", "ipvlan"},
		"Far":      {"Three letters are another word.", "flannel", ""},
		"Short":    {"Half of a short text may differ.", "up", "ip"},
		"TooShort": {"Two letters of three are another word.", "xyp", ""},
		"Empty":    {"An empty text is no typing error.", "", ""},
		"Long":     {"A long text costs nothing.", strings.Repeat("x", 1<<20), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text.Nearest(tc.in, words); got != tc.want {
				t.Errorf("%s got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
