// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os/exec"
	"strings"
	"testing"
)

func TestStringWithoutStamp(t *testing.T) {
	t.Parallel()
	if got := String(); got != unstamped {
		t.Errorf("String() of a test binary: got %q, want %q", got, unstamped)
	}
}

// The Makefile sets this variable by its path, and the linker ignores a name that does not exist.
func TestStamp(t *testing.T) {
	t.Parallel()
	const want = "v1.2.3-stamped"
	cmd := exec.Command("go", "run",
		"-ldflags", "-X github.com/patchbay-cni/patchbay/internal/version.version="+want, "./testdata")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go run: %v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("stamped version: got %q, want %q", got, want)
	}
}
