// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/patchbay-cni/patchbay/scripts/internal/ociimage"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// imagesFile lists the names of the images, one on a line.
const imagesFile = "images.txt"

// writeImages writes an archive for each image, with its platforms, an SBOM for each platform, and the list of
// images.
func writeImages(r release, p product.Product, programs, dir string) error {
	var list strings.Builder
	for _, image := range p.Images {
		tag, err := imageName(r, image)
		if err != nil {
			return err
		}
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, platform := range p.ImagePlatforms {
			img, err := platformImage(r, image, platform, filepath.Join(programs, platform.String()))
			if err != nil {
				return fmt.Errorf("build image %s for %s: %w", image.Name, platform, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add:        img,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: platform.OS, Architecture: platform.Arch}},
			})
			if err := writeImageSBOM(r, image, platform, img, programs, dir); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "images"), 0o755); err != nil {
			return err
		}
		if err := ociimage.WriteArchive(filepath.Join(dir, "images", image.Name+".tar"), index, tag); err != nil {
			return fmt.Errorf("write image %s: %w", image.Name, err)
		}
		fmt.Fprintln(&list, tag)
	}
	return writeFile(filepath.Join(dir, imagesFile), []byte(list.String()))
}

// platformImage is an image for one platform.
func platformImage(r release, image product.Image, platform product.Platform, programs string) (v1.Image, error) {
	return ociimage.New(image, ociimage.Options{
		Platform: platform, Programs: programs, Licenses: r.Source, Version: r.Version, Created: v1.Time{Time: r.Time},
		Labels: map[string]string{
			"org.opencontainers.image.source":   homepage,
			"org.opencontainers.image.revision": r.Commit,
			"org.opencontainers.image.created":  r.Time.Format(time.RFC3339),
		},
	})
}

// writeImageSBOM writes the SBOM of an image for one platform.
func writeImageSBOM(r release, image product.Image, platform product.Platform, img v1.Image, programs, dir string) error {
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("digest of image %s: %w", image.Name, err)
	}
	a := artifact{kind: "container", name: image.Name, platform: platform, digest: digest.Hex}
	for _, p := range image.Programs {
		a.programs = append(a.programs, p.Name)
	}
	return writeSBOM(r, a, programs, dir)
}
