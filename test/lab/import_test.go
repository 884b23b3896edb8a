// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package lab_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/node"
)

// An image that was built anew, into the same file and under the same tag, is what the
// node has then.
func importAgain(t *testing.T, l *lab.Lab) {
	t.Helper()
	to := node.Config{
		Name: "node-1", Port: 1, Fabric: fabric.Fabric{Netns: l.Netns()},
		Dir: filepath.Join("/run/patchbay-lab", l.Name(), "nodes", "node-1"),
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	const ref = "patchbay.local/again:lab"
	before := ""
	for build := range 2 {
		writeImage(t, file, ref, fmt.Sprint(build))
		if err := to.Import(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		now := must(t)(l.Exec(t.Context(), "node-1", "ctr", "-n", "k8s.io", "images", "list", "name=="+ref))
		if !strings.Contains(now, ref) || now == before {
			t.Fatalf("after build %d the node has %q, before it had %q", build, now, before)
		}
		before = now
	}
}

// writeImage writes an archive of an empty image that differs by its build.
func writeImage(t *testing.T, file, ref, build string) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	// Without a platform, a node takes it for an image of other machines.
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Labels: map[string]string{"build": build}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
}
