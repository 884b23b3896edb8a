// SPDX-License-Identifier: Apache-2.0

// Command images packs the static programs in bin/ into OCI image archives, one
// per program that runs in a cluster, without a container engine or a registry:
//
//	go run ./scripts/images --version v0.1.0 --bin bin --out bin/images
//	ctr -n k8s.io images import bin/images/patchbayd.tar
//
// The same programs always give the same bytes: an archive has no time, host name or user.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/scripts/internal/ociimage"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run builds every image of the product and prints one line for each.
func run(args []string, stdout io.Writer) error {
	o := ociimage.Options{Platform: product.ImagePlatform()}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.StringVar(&o.Version, "version", version.DevelopmentTag, "tag of the images, besides "+version.DevelopmentTag)
	flags.StringVar(&o.Programs, "bin", "bin", "folder of the static programs")
	flags.StringVar(&o.Licenses, "licenses", ".", "folder of LICENSE and NOTICE")
	out := flags.String("out", "bin/images", "folder for the archives")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("make output folder: %w", err)
	}
	for _, image := range product.Images() {
		file := filepath.Join(*out, image.Name+".tar")
		tag, err := build(image, o, file)
		if err != nil {
			return fmt.Errorf("build %s: %w", file, err)
		}
		fmt.Fprintf(stdout, "%s: %s\n", file, tag)
	}
	return nil
}

// build writes an image's archive and returns the image's name. The archive also has the tag that the manifests
// in deployments/ name until a version is set.
func build(image product.Image, o ociimage.Options, file string) (name.Tag, error) {
	repository := version.LocalRegistry + "/" + image.Name
	tag, err := name.NewTag(repository + ":" + o.Version)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name image: %w", err)
	}
	devel, err := name.NewTag(repository + ":" + version.DevelopmentTag)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name image: %w", err)
	}
	img, err := ociimage.New(image, o)
	if err != nil {
		return name.Tag{}, err
	}
	return tag, ociimage.WriteArchive(file, img, tag, devel)
}
