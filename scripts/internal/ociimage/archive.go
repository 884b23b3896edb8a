// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Annotations of the entries of an archive's index.
const (
	// ContainerdName is where containerd's import takes an image's full name from.
	ContainerdName = "io.containerd.image.name"
	// RefName is OCI's own annotation, which holds a tag only.
	RefName = "org.opencontainers.image.ref.name"
)

// WriteArchive writes an OCI image layout (image-spec, image-layout.md) as one tar file, with an index
// entry per name. The item is an image, or an index of images for several platforms. WriteArchive replaces
// file in one step.
func WriteArchive(file string, item mutate.Appendable, names ...name.Tag) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	for _, tag := range names {
		if err := add(path, item, tag); err != nil {
			return fmt.Errorf("add %s to layout: %w", tag, err)
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

// add appends an entry for the name.
func add(path layout.Path, item mutate.Appendable, tag name.Tag) error {
	annotations := layout.WithAnnotations(map[string]string{ContainerdName: tag.String(), RefName: tag.TagStr()})
	switch item := item.(type) {
	case v1.Image:
		return path.AppendImage(item, annotations)
	case v1.ImageIndex:
		return path.AppendIndex(item, annotations)
	default:
		return fmt.Errorf("must be an image or an index, got %T", item)
	}
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
