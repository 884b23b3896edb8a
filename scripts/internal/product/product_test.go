// SPDX-License-Identifier: Apache-2.0

package product

import (
	"os"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

func TestSelect(t *testing.T) {
	t.Parallel()
	const all = "patchbayd, patchbay-controller, patchbay-agent, patchbay-operator, patchbay-hub, linux/amd64, linux/arm64, darwin/amd64, darwin/arm64, windows/amd64"
	cases := map[string]struct{ reason, images, platforms, want, err string }{
		"All":      {reason: "without lists, everything is built", want: all},
		"Image":    {reason: "a list of images limits images only", images: "patchbay-agent", want: "patchbay-agent" + strings.TrimPrefix(all, "patchbayd, patchbay-controller, patchbay-agent, patchbay-operator, patchbay-hub")},
		"Platform": {reason: "a list of platforms limits images and archives", images: "patchbayd,patchbay-hub", platforms: "linux/arm64", want: "patchbayd, patchbay-hub, linux/arm64"},
		"Plugin":   {reason: "no image runs on Windows", platforms: "windows/amd64", want: "windows/amd64"},
		"Unknown":  {reason: "a name with a mistake must not lead to a release without it", images: "patchbayd,patchbay", platforms: "linux/386", err: "patchbay, linux/386: must be an image or a platform of the release: " + all},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := All().Select(tc.images, tc.platforms)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("%s: got %s, %v, want %s", tc.reason, got, err, tc.want)
			}
		})
	}
}

// The Makefile and this package must agree, so that released programs are those that the tests run.
func TestMakefileHasTheSameTags(t *testing.T) {
	t.Parallel()
	path, err := source.Path("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nTAGS        := " + Tags + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("the Makefile must have the line %q", strings.TrimSpace(want))
	}
}
