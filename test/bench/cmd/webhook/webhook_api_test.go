// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package main

import (
	"strings"
	"testing"
)

// The benchmark itself, small.
func TestSmall(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	args := []string{"--runs=1", "--rate=20", "--duration=2s", "--networks=20", "--namespaces=2", "--probes=5"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"40 calls", "not annotated: ", "annotated, no webhook: ", " 0 calls", "API server: mean ms", `÷ that of "not annotated"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report must have %q:\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}
