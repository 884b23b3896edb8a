// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package image

import (
	"archive/tar"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func read(t *testing.T, file, ref string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatalf("read %s: %v", ref, err)
	}
	return img
}

func TestWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base.tar")
	for range 2 { // it replaces what is there
		if err := Write(file); err != nil {
			t.Fatal(err)
		}
	}
	pause, err := read(t, file, Pause).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/bin/busybox", "sleep", "infinity"}, pause.Config.Entrypoint); diff != "" {
		t.Errorf("pause:\n%s", diff)
	}
	files := map[string]string{}
	content := mutate.Extract(read(t, file, Busybox))
	defer content.Close()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.Linkname
	}
	for _, applet := range []string{"sh", "ping", "ip", "sleep", "arping", "wget"} {
		if files["bin/"+applet] != "busybox" {
			t.Errorf("applet %s is missing", applet)
		}
	}
}
