// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package main

import (
	"strings"
	"testing"
)

// The benchmark itself, small: nothing is lost or stale whatever flaps.
func TestSmall(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), []string{"--services=50", "--each=6", "--samples=20", "--flap=3s", "--workers=4"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"from nothing", "50 writes", "after a restart", " 0 writes", "1.00 writes each", "nothing lost or stale"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}

func TestWrongFlag(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"--nope"}, nil); err == nil {
		t.Error("run with a flag that does not exist: no error")
	}
}
