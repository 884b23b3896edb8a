// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Names of the images. No resolver answers for their registry.
const (
	// Busybox has all applets in /bin.
	Busybox = "patchbay.local/busybox:lab"
	// Pause holds a Pod's namespaces.
	Pause = "patchbay.local/pause:lab"
)

// busybox is where Debian's busybox-static has it.
const busybox = "/usr/bin/busybox"

// Write writes both images to an archive that containerd imports.
func Write(file string) error {
	layer, err := layer()
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for ref, config := range map[string]v1.Config{
		Busybox: {Cmd: []string{"/bin/sh"}},
		Pause:   {Entrypoint: []string{"/bin/busybox", "sleep", "infinity"}},
	} {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("parse image name: %w", err)
		}
		config.Env = []string{"PATH=/bin"}
		if images[tag], err = build(layer, config); err != nil {
			return fmt.Errorf("build %s: %w", ref, err)
		}
	}
	next := file + ".new"
	if err := tarball.MultiWriteToFile(next, images); err != nil {
		return fmt.Errorf("write %s: %w", next, err)
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("replace archive: %w", err)
	}
	return nil
}

func build(layer v1.Layer, config v1.Config) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(img, file)
}

// layer has busybox, a link per applet, and a few folders and files that programs expect.
func layer() (v1.Layer, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list busybox's applets: %w", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "root/", Mode: 0o700},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))},
	}
	for applet := range strings.Lines(string(applets)) {
		if applet = strings.TrimSpace(applet); applet != "busybox" {
			headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777})
		}
	}
	for _, h := range headers {
		if err := add(w, h, program); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end layer: %w", err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

func add(w *tar.Writer, h tar.Header, content []byte) error {
	if err := w.WriteHeader(&h); err != nil {
		return fmt.Errorf("add %s: %w", h.Name, err)
	}
	if h.Size == 0 {
		return nil
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("add %s: %w", h.Name, err)
	}
	return nil
}
