// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// containerdName is the annotation that containerd's import takes an image's
// full name from; OCI's own ref.name holds a tag only.
const containerdName = "io.containerd.image.name"

// writeArchive writes an OCI image layout (image-spec, image-layout.md) as one
// tar file, with an index entry per name. It replaces file in one step.
func writeArchive(file string, img v1.Image, names ...string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	for _, name := range names {
		if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{containerdName: name})); err != nil {
			return fmt.Errorf("add %s to layout: %w", name, err)
		}
	}
	next := file + ".new"
	if err := writeTar(dir, next); err != nil {
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("replace archive: %w", err)
	}
	return nil
}

// writeTar writes the files below dir, in the order of their names, to a tar file.
func writeTar(dir, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	w := tar.NewWriter(out)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return addFile(w, name, 0o644, content)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", file, err)
	}
	return w.Close()
}

// addFile appends one file, owned by root and without a time.
func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}
