// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"runtime/debug"
	"testing"
)

func TestMemoryIsReleasedWhenCachesAreFull(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{true, false} {
		freed := false
		r := memoryReleaser{synced: func(context.Context) bool { return synced }, free: func() { freed = true }}
		if err := r.Start(t.Context()); err != nil || freed != synced {
			t.Errorf("caches full: %t, released: %t, error %v", synced, freed, err)
		}
	}
	if (memoryReleaser{}).NeedLeaderElection() {
		t.Error("replicas that do not lead would release no memory")
	}
}

// The environment variable GOGC has precedence.
func TestSetGCPercent(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	for env, want := range map[string]int{"80": 77, "": gcPercent} {
		t.Setenv("GOGC", env)
		debug.SetGCPercent(77)
		setGCPercent()
		if got := debug.SetGCPercent(77); got != want {
			t.Errorf("GOGC=%q: %d percent, want %d", env, got, want)
		}
	}
}
