// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// archive is a tar archive of regular files, by pairs of name and content.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		h := tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
		if err := add(w, h, []byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func compressed(t *testing.T, raw []byte) string {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	layer := compressed(t, archive(t, "./bin/program", "abc", "etc/empty", ""))
	file := filepath.Join(t.TempDir(), "image.tar")
	// Two images share the first layer. The others are a later layer, a manifest and a
	// configuration.
	content := archive(t, "one", layer, "two", layer, "three", compressed(t, archive(t, "bin/program", "")),
		"index.json", "{}", "config", "{}")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Files(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{Path: "bin/program", Sum: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(file, content[:600], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Files(file); err == nil {
		t.Error("no error from an archive without its end")
	}
}
