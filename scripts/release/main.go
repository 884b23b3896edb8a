// SPDX-License-Identifier: Apache-2.0

// Command release builds a release into a folder: images for all platforms, manifests, Helm charts, archives of the
// kubectl plugin, SBOMs, and their checksums. It needs no container engine and no registry:
//
//	go run ./scripts/release --version v0.1.0
//
// A commit and a version of Go always give the same bytes. docs/release.md explains what is in the folder.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	version, registry, baseURL, out string
	images, platforms               string
	allowDirty                      bool
}

// run builds the release of the repository in the working folder.
func run(args []string, stdout io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.version, "version", "", "`version` of the release, such as v0.1.0; default: the tag of the commit")
	flags.StringVar(&o.registry, "registry", version.LocalRegistry, "`registry` and path in the names of the images, such as registry.example/patchbay")
	flags.StringVar(&o.baseURL, "base-url", "", "`URL` of the folder from which krew gets the archives; default: that of the release on GitHub")
	flags.StringVar(&o.out, "out", "bin/release", "`folder` for the release, below which each version has its own")
	flags.StringVar(&o.images, "images", "", "comma-separated `names` of images; default: all")
	flags.StringVar(&o.platforms, "platforms", "", "comma-separated `platforms` such as linux/amd64; default: all")
	flags.BoolVar(&o.allowDirty, "allow-dirty", false, "build a work tree with changes that are not committed, for tests")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	p, err := product.All().Select(o.images, o.platforms)
	if err != nil {
		return err
	}
	r, err := describe(".", o, os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	programs := filepath.Join(o.out, "programs")
	if err := build(r, p, programs, stdout); err != nil {
		return err
	}
	return publish(r, p, programs, filepath.Join(o.out, r.Version), stdout)
}

// publish writes all files of the release to a folder, which it replaces.
func publish(r release, p product.Product, programs, dir string, stdout io.Writer) error {
	next := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".new")
	if err := os.RemoveAll(next); err != nil {
		return fmt.Errorf("remove what an earlier run has left: %w", err)
	}
	if err := write(r, p, programs, next); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the earlier release: %w", err)
	}
	if err := os.Rename(next, dir); err != nil {
		return fmt.Errorf("move release: %w", err)
	}
	_, err := fmt.Fprintf(stdout, "%s: release %s of commit %s; verify it with: cd %s && sha256sum -c %s\n", dir, r.Version, r.Commit, dir, sumsFile)
	return err
}

// write writes each kind of file. A new kind is a further step here, before the checksums.
func write(r release, p product.Product, programs, dir string) error {
	if err := writeImages(r, p, programs, dir); err != nil {
		return err
	}
	if err := writePlugins(r, p, programs, dir); err != nil {
		return err
	}
	if err := writeManifests(r, dir); err != nil {
		return err
	}
	if err := writeCharts(r, dir); err != nil {
		return err
	}
	for _, name := range licenses() {
		if err := copyLicense(r.Source, dir, name); err != nil {
			return err
		}
	}
	return writeSums(dir)
}

// licenses are the texts beside the programs, from the root of the repository.
func licenses() []string { return []string{"LICENSE", "NOTICE"} }

func copyLicense(source, dir, name string) error {
	text, err := os.ReadFile(filepath.Join(source, name))
	if err != nil {
		return fmt.Errorf("read licence: %w", err)
	}
	return writeFile(filepath.Join(dir, name), text)
}

// writeFile writes a file of the release, with its folder.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
