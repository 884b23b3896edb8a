// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"testing"
)

// build builds the plugin as the Makefile does.
func build(t *testing.T, path string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
		"github.com/patchbay-cni/patchbay/cmd/patchbay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build plugin: %v\n%s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 6_000_000 {
		t.Errorf("plugin: got %d bytes, want at most 6 MB", info.Size())
	}
}
