// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, line string
		want         processStat
	}{
		"Name":  {"A name may have spaces and parentheses.", "42 (a b) c) S 7 1 1 0 -1 0 0 0 0 0 30 12 0 0 20", processStat{"a b) c", "7", 420 * time.Millisecond}},
		"Short": {"The process ended while it was read.", "42 (a) S 7", processStat{}},
		"None":  {"The file is empty.", "", processStat{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parseStat([]byte(tc.line)); got != tc.want {
				t.Errorf("%s\ngot %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestParseAll(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		want         time.Duration
	}{
		"All":   {"Neither idle nor iowait counts, and guests are in user.", "cpu  1 2 3 1000 2000 4 5 6 7 8\ncpu0 9", 210 * time.Millisecond},
		"Short": {"The line lacks fields.", "cpu  1 2 3", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parseAll([]byte(tc.text)); got != tc.want {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestProcessorTimes(t *testing.T) {
	t.Parallel()
	used := ProcessorTimes()
	if used[All] < used[Self] || used[Self] < 0 {
		t.Errorf("got %v, want the machine's time to include this process", used)
	}
}
