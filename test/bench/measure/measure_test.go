// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		series Series
		median float64
		text   string
	}{
		"None": {reason: "No run, no figure.", text: "–"},
		"One":  {reason: "One run has no spread.", series: Series{3}, median: 3, text: "3.00 (3.00–3.00)"},
		"Odd":  {reason: "The middle one, whatever the order.", series: Series{900, 10, 55}, median: 55, text: "55.0 (10.0–900)"},
		"Even": {reason: "The mean of the middle two.", series: Series{4, 1, 2, 3}, median: 2.5, text: "2.50 (1.00–4.00)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := append(Series(nil), tc.series...)
			if got := tc.series.Median(); got != tc.median {
				t.Errorf("%s\nMedian: got %v, want %v", tc.reason, got, tc.median)
			}
			if got := tc.series.String(); got != tc.text {
				t.Errorf("%s\nString: got %q, want %q", tc.reason, got, tc.text)
			}
			if diff := cmp.Diff(before, tc.series); diff != "" {
				t.Errorf("the series itself changed: -before +after\n%s", diff)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 0, 100)
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	cases := map[string]struct {
		reason  string
		samples []time.Duration
		q       float64
		want    time.Duration
	}{
		"None":   {reason: "Nothing is 0.", q: 0.99},
		"P99":    {reason: "99 of 100 do not exceed it.", samples: hundred, q: 0.99, want: 99},
		"Median": {reason: "Half of them.", samples: hundred, q: 0.5, want: 50},
		"All":    {reason: "None exceeds the last.", samples: hundred, q: 1, want: 100},
		"Least":  {reason: "The first is the least there is.", samples: hundred, q: 0, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Quantile(tc.samples, tc.q); got != tc.want {
				t.Errorf("%s\nQuantile: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{Name: "ours", Columns: []Series{{100}, {1}}},
		{Name: "peer", Columns: []Series{{10}, {5}}},
		{Name: "nothing", Columns: []Series{{}, {}}},
	}
	for name, tc := range map[string]struct {
		reason string
		less   bool
		alone  bool
		want   []string
	}{
		"Rates": {reason: "More is better.", want: []string{"x", "ours 100 (100–100) 1.00 (1.00–1.00)", "peer 10.0 (10.0–10.0) 5.00 (5.00–5.00) 10.0×", "nothing – –"}},
		"Times": {reason: "Less is better.", less: true, want: []string{"x", "ours 100 (100–100) 1.00 (1.00–1.00)", "peer 10.0 (10.0–10.0) 5.00 (5.00–5.00) 0.10×", "nothing – –"}},
		"Alone": {reason: "Nothing to compare.", alone: true, want: []string{"x", "ours 100 (100–100) 1.00 (1.00–1.00)", "peer 10.0 (10.0–10.0) 5.00 (5.00–5.00)", "nothing – –"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			table := Table{Title: "x", Columns: []string{"a", "b"}, LessIsBetter: tc.less, Alone: tc.alone, Rows: rows}
			if err := table.Write(&out); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
				if i != 1 && i != 2 { // the machine's own line, and the headings
					got = append(got, strings.Join(strings.Fields(line), " "))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nlines: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestTableSaysWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	if err := (Table{Rows: []Row{{Columns: []Series{{1}}}}}).Write(fullDisk{}); !errors.Is(err, errFull) {
		t.Errorf("Write: got %v, want %v", err, errFull)
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	if got := Machine(); strings.Contains(got, "unknown") || !strings.Contains(got, "kB of memory") {
		t.Errorf("Machine: got %q", got)
	}
}

func TestFieldOfMissingFile(t *testing.T) {
	t.Parallel()
	if got := field("/nowhere", "x") + " " + field("/proc/meminfo", "NoSuchKey"); got != "unknown unknown" {
		t.Errorf("field: got %q", got)
	}
}
