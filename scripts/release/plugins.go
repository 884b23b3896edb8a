// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// writePlugins writes an archive of the kubectl plugin for each platform, its SBOM, and the manifest by which krew
// installs it.
func writePlugins(r release, p product.Product, programs, dir string) error {
	manifest := newKrewManifest(r)
	for _, platform := range p.PluginPlatforms {
		program := platform.Executable(product.Plugin().Name)
		files, err := pluginFiles(r.Source, filepath.Join(programs, platform.String()), program)
		if err != nil {
			return err
		}
		name, content, err := archive(platform, r, files)
		if err != nil {
			return fmt.Errorf("pack %s for %s: %w", program, platform, err)
		}
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
		digest := sha256.Sum256(content)
		a := artifact{kind: "application", name: product.Plugin().Name, platform: platform, digest: hex.EncodeToString(digest[:]), programs: []string{program}}
		if err := writeSBOM(r, a, programs, dir); err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Bin: program, URI: r.BaseURL + "/" + name, SHA256: a.digest,
			Selector: krewSelector{MatchLabels: map[string]string{"os": platform.OS, "arch": platform.Arch}},
		})
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("encode the manifest of krew: %w", err)
	}
	return writeFile(filepath.Join(dir, "krew", manifest.Metadata.Name+".yaml"), content)
}

// packed is a file in an archive.
type packed struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// pluginFiles reads the program and the licences, which krew expects beside it.
func pluginFiles(source, programs, program string) ([]packed, error) {
	content, err := os.ReadFile(filepath.Join(programs, program))
	if err != nil {
		return nil, fmt.Errorf("read plugin: %w", err)
	}
	files := []packed{{name: program, mode: 0o755, content: content}}
	for _, name := range licenses() {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, fmt.Errorf("read licence: %w", err)
		}
		files = append(files, packed{name: name, mode: 0o644, content: text})
	}
	return files, nil
}

// archive packs files in the format that is usual on the platform, and returns the archive with its name.
func archive(platform product.Platform, r release, files []packed) (string, []byte, error) {
	name := product.Plugin().Name + "-" + r.Version + "-" + platform.String()
	if platform.OS == "windows" {
		content, err := zipOf(files, r.Time)
		return name + ".zip", content, err
	}
	content, err := tarOf(files, r.Time)
	return name + ".tar.gz", content, err
}

func zipOf(files []packed, modified time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified.UTC()}
		h.SetMode(f.mode)
		entry, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func tarOf(files []packed, modified time.Time) ([]byte, error) {
	var buf bytes.Buffer
	compressed := gzip.NewWriter(&buf)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: modified, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), compressed.Close())
	return buf.Bytes(), err
}
