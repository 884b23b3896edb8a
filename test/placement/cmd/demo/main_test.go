// SPDX-License-Identifier: Apache-2.0

//go:build placement

package main

import (
	"bytes"
	"strings"
	"testing"
)

// What README and docs/placement.md promise of `make demo-placement`: it shows the move to its end.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), nil, &out); err != nil {
		t.Fatalf("demo: %v, after\n%s", err, &out)
	}
	if want := "  east   \n  west   \n  south  shop   6/6"; !strings.Contains(out.String(), want) {
		t.Errorf("demo: want that all has moved:\n%s\nin\n%s", want, &out)
	}
}
