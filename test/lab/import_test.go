// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package lab_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
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
	to := firstNode(l)
	file := filepath.Join(t.TempDir(), "image.tar")
	const ref = "patchbay.local/again:lab"
	before := ""
	for build := range 2 {
		writeImage(t, file, ref, fmt.Sprint(build))
		if err := to.Import(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		now := mustReturn(t)(l.Exec(t.Context(), "node-1", "ctr", "-n", "k8s.io", "images", "list", "name=="+ref))
		if !strings.Contains(now, ref) || now == before {
			t.Fatalf("after build %d the node has %q, before it had %q", build, now, before)
		}
		before = now
	}
}

// A sector that a node's disk lost while an image was unpacked is found and repaired.
func importRepairs(t *testing.T, l *lab.Lab) {
	t.Helper()
	to, reports := firstNode(l), 0
	to.Logf = func(format string, args ...any) { t.Logf(format, args...); reports++ }
	file := filepath.Join(t.TempDir(), "image.tar")
	content := strings.Repeat("0123456789abcdef", 1024)
	writeImage(t, file, "patchbay.local/damaged:lab", "1", static(t, "program", content))
	shell := func(script string) string {
		t.Helper()
		return mustReturn(t)(l.Exec(t.Context(), "node-1", "sh", "-ec",
			"cd /var/lib/containerd; program=io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/program; "+script))
	}
	if err := to.Import(t.Context(), file); err != nil || reports != 0 {
		t.Fatalf("got error %v and %d reports of damage from a disk that is well", err, reports)
	}
	shell(`dd if=/dev/zero of="$(echo $program)" bs=512 seek=7 count=1 conv=notrunc,fsync
		rm "imported/$(ls -t imported | head -n 1)"`)
	if err := to.Import(t.Context(), file); err != nil || reports != 1 {
		t.Fatalf("got error %v and %d reports of one damaged sector", err, reports)
	}
	if got := shell("cat $program"); got != content {
		t.Error("the program is still damaged")
	}
}

func firstNode(l *lab.Lab) node.Config {
	return node.Config{
		Name: "node-1", Port: 1, Fabric: fabric.Fabric{Netns: l.Netns()},
		CheckImages: true,
		Dir:         filepath.Join("/run/patchbay-lab", l.Name(), "nodes", "node-1"),
	}
}

// static is a layer with one file.
func static(t *testing.T, name, content string) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
	err := w.WriteHeader(&h)
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// writeImage writes an archive of an image that differs by its build.
func writeImage(t *testing.T, file, ref, build string, layers ...v1.Layer) {
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
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
}
