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
		"Long":      {"The reader sees that the text was cut.", "123456", "12345…"},
		"Character": {"A character on the limit is left out as a whole.", "1234é", "1234…"},
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
