// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// The Makefile passes its variables on as flags.
func TestMakeRelease(t *testing.T) {
	t.Parallel()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	read(t, root, "Makefile") // go test must know that this test depends on the file
	cases := map[string]struct {
		reason    string
		variables []string
		want      string
	}{
		"Default":   {reason: "the version is that of the tag", want: "go run ./scripts/release"},
		"Dirty":     {reason: "a test may build what is not committed", variables: []string{"ALLOW_DIRTY=1"}, want: "go run ./scripts/release --allow-dirty"},
		"NotDirty":  {reason: "0 means no", variables: []string{"ALLOW_DIRTY=0"}, want: "go run ./scripts/release"},
		"NoDirty":   {reason: "only 1 means yes", variables: []string{"ALLOW_DIRTY=no"}, want: "go run ./scripts/release"},
		"Variables": {reason: "a release can be built again with its names", variables: []string{"VERSION=v0.1.0", "REGISTRY=registry.example", "BASE_URL=https://files.example"}, want: "go run ./scripts/release --version 'v0.1.0' --registry 'registry.example' --base-url 'https://files.example'"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("make", append([]string{"--dry-run", "--no-print-directory", "release"}, tc.variables...)...)
			cmd.Dir = root
			// The variables of the caller of this test, which may be make, are not for this one.
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(strings.Fields(string(out)), " "); got != tc.want {
				t.Errorf("%s: got command %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
