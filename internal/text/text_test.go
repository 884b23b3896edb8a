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

// A node that was taken over must not write to the terminal of an administrator.
func TestOneLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, in, want string }{
		"Printed":  {"It stays.", "create DanmEp é: “no”", "create DanmEp é: “no”"},
		"Lines":    {"A message has one line.", "a\nb\tc", "a b c"},
		"Terminal": {"An escape sequence is text.", "\x1b[2Ja", " [2Ja"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text.OneLine(tc.in); got != tc.want {
				t.Errorf("%s got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
