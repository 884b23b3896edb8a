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

func TestImageWithoutStamp(t *testing.T) {
	t.Parallel()
	if got, want := Image("patchbayd"), "patchbay.local/patchbayd:devel"; got != want {
		t.Errorf("Image(patchbayd) of a test binary: got %q, want %q, which `make images` writes", got, want)
	}
}

// The Makefile and scripts/release set the variables by their paths, and the linker ignores a name that does
// not exist.
func TestStamp(t *testing.T) {
	t.Parallel()
	const path = "-X github.com/patchbay-cni/patchbay/internal/version."
	cases := map[string]struct{ reason, flags, want string }{
		"Build": {
			reason: "a build between releases has a version, and images that `make images` writes",
			flags:  path + "version=v1.2.3-stamped",
			want:   "v1.2.3-stamped patchbay.local/patchbayd:devel",
		},
		"Release": {
			reason: "a released program names the images of its release",
			flags:  path + "version=v1.2.3 " + path + "registry=registry.example/patchbay",
			want:   "v1.2.3 registry.example/patchbay/patchbayd:v1.2.3",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command("go", "run", "-ldflags", tc.flags, "./testdata").CombinedOutput()
			if err != nil {
				t.Fatalf("go run: %v\n%s", err, out)
			}
			if got := strings.TrimSpace(string(out)); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
