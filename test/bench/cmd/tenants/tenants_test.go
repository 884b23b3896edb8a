// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRunRefusesUnknownFlags(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run: got no error")
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	r := result{took: []time.Duration{time.Second, 3 * time.Second}, all: 2 * time.Second, processor: time.Second}
	if diff := cmp.Diff([]float64{3000, 1000, 500, 2}, r.figures()); diff != "" {
		t.Errorf("figures: -want +got\n%s", diff)
	}
}

// The client writes what admission would assign, and nothing else differs.
func TestNetwork(t *testing.T) {
	t.Parallel()
	asked, whole := network(4, true), network(4, false)
	if asked.Spec.Options.VXLAN != 0 || whole.Spec.Options.VXLAN != 5 {
		t.Errorf("VNIs: %d and %d, want 0 and 5", asked.Spec.Options.VXLAN, whole.Spec.Options.VXLAN)
	}
	whole.Spec.Options.VXLAN, whole.Spec.Options.Device = 0, ""
	if diff := cmp.Diff(asked, whole); diff != "" {
		t.Errorf("networks: -asked +whole\n%s", diff)
	}
}
