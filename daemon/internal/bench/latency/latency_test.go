// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run rejects an unknown flag.
func TestRunRejectsUnknownFlags(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run with an unknown flag: got no error, want one")
	}
}

// Each run is compared with the empty network of the same run.
func TestTable(t *testing.T) {
	t.Parallel()
	ms := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Millisecond} }
	got := table(options{}, [][][]time.Duration{{ms(2), ms(4)}, {ms(2), ms(4)}, {ms(3), ms(6)}})
	var ratios []float64
	for _, row := range got.Rows {
		ratios = append(ratios, row.Columns[2]...)
	}
	if diff := cmp.Diff([]float64{1, 1, 1, 1, 1.5, 1.5}, ratios); diff != "" {
		t.Errorf("p50 relative to the empty network: -want +got\n%s", diff)
	}
}
