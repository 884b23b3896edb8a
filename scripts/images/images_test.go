// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/patchbay-cni/patchbay/scripts/internal/ociimage"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// programs builds a bin/ folder with every program of the images, each a real static one.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, image := range product.Images() {
		for _, p := range image.Programs {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p.Name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(filepath.Join(dir, "program"), filepath.Join(dir, p.Name)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// untar returns the files of an archive by name.
func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunWritesAnOCIArchive(t *testing.T) {
	t.Parallel()
	bin, out := programs(t), t.TempDir()
	if err := run([]string{"--version", "v1", "--bin", bin, "--licenses", "../..", "--out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(out, "patchbayd.tar"))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, content)

	if got, want := string(bytes.TrimSpace(files["oci-layout"])), "imageLayoutVersion"; !strings.Contains(got, want) {
		t.Errorf("oci-layout is %q, want it to name the %s", got, want)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range index.Manifests {
		names = append(names, m.Annotations[ociimage.ContainerdName])
	}
	if diff := cmp.Diff([]string{"patchbay.local/patchbayd:v1", "patchbay.local/patchbayd:devel"}, names); diff != "" {
		t.Errorf("containerd imports the image under other names (-want +got):\n%s", diff)
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(files["blobs/sha256/"+index.Manifests[0].Digest.Hex], &manifest); err != nil {
		t.Fatal(err)
	}
	for _, blob := range append(manifest.Layers, manifest.Config) {
		if _, ok := files["blobs/sha256/"+blob.Digest.Hex]; !ok {
			t.Errorf("blob %s is named but not in the archive", blob.Digest)
		}
	}
}

func TestRunIsReproducible(t *testing.T) {
	t.Parallel()
	bin := programs(t)
	var archives [2][]byte
	for i := range archives {
		out := t.TempDir()
		if err := run([]string{"--version", "v1", "--bin", bin, "--licenses", "../..", "--out", out}, io.Discard); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(filepath.Join(out, "patchbayd.tar")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the same programs differ")
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	dynamic := t.TempDir()
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dynamic, "patchbayd"), sh, 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Missing": {
			reason: "a program that was not built is named",
			args:   []string{"--bin", t.TempDir()}, want: "patchbayd",
		},
		"Dynamic": {
			reason: "a dynamically linked program cannot start on scratch",
			args:   []string{"--bin", dynamic}, want: "dynamically linked",
		},
		"Flag": {
			reason: "an unknown flag is an error",
			args:   []string{"--nope"}, want: "nope",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := run(append(tc.args, "--out", t.TempDir()), io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}
