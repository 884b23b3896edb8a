// SPDX-License-Identifier: Apache-2.0

// Package ociimage builds container images from static programs and writes them as OCI archives, without a
// container engine. The same input gives the same bytes: nothing depends on the time, the host or the user.
package ociimage

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// Options are the input of an image beside its description.
type Options struct {
	Platform product.Platform
	// Programs is the folder of the programs.
	Programs string
	// Licenses is the folder of LICENSE and NOTICE, which are copied to the root of the image.
	Licenses string
	Version  string
	// Created is the time in the image's configuration; zero for none.
	Created v1.Time
	// Labels are added to those that each image has.
	Labels map[string]string
}

// New makes an image of one layer, with the programs on top of nothing.
func New(image product.Image, o Options) (v1.Image, error) {
	content, err := layerTar(image, o)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compress layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created = o.Platform.OS, o.Platform.Arch, o.Created
	cfg.Config.Entrypoint = []string{"/" + image.Programs[0].Name}
	cfg.Config.WorkingDir = "/"
	cfg.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       image.Name,
		"org.opencontainers.image.description": image.Description,
		"org.opencontainers.image.version":     o.Version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	maps.Copy(cfg.Config.Labels, o.Labels)
	return mutate.ConfigFile(img, cfg)
}

// layerTar is an uncompressed layer whose bytes depend on the content of its files only.
func layerTar(image product.Image, o Options) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range image.Programs {
		path := filepath.Join(o.Programs, p.Name)
		if err := mustBeStatic(path); err != nil {
			return nil, err
		}
		if err := copyFile(w, p.Name, 0o755, path); err != nil {
			return nil, err
		}
	}
	for _, text := range []string{"LICENSE", "NOTICE"} {
		if err := copyFile(w, text, 0o644, filepath.Join(o.Licenses, text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end layer: %w", err)
	}
	return buf.Bytes(), nil
}

// mustBeStatic refuses a program that needs a loader: an image on scratch has
// none, and the failure on the node would only say "no such file".
func mustBeStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("open program %s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("program %s is dynamically linked: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// copyFile appends the file at path as name.
func copyFile(w *tar.Writer, name string, mode int64, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return addFile(w, name, mode, content)
}
