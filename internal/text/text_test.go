// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"testing"

	"github.com/patchbay-cni/patchbay/internal/text"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, in, want string }{
		"Empty":     {"An empty text stays empty.", "", ""},
		"Fits":      {"The limit is inclusive.", "12345", "12345"},
		"Long":      {"The beginning and the end stay.", "123456789", "123…89"},
		"Character": {"A character on the limit is left out as a whole.", "12éé56", "12…56"},
		"Odd":       {"The middle is left out.", "123456", "123…56"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text.Truncate(tc.in, 5); got != tc.want {
				t.Errorf("%s got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
