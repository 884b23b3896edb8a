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
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run builds every image of images and prints one line for each.
func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	version := flags.String("version", "devel", "tag of the images, besides "+develTag)
	bin := flags.String("bin", "bin", "folder of the static programs")
	out := flags.String("out", "bin/images", "folder for the archives")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("make output folder: %w", err)
	}
	for _, s := range specs() {
		file := filepath.Join(*out, s.name+".tar")
		if err := build(s, *bin, *version, file); err != nil {
			return fmt.Errorf("build %s: %w", file, err)
		}
		fmt.Fprintf(stdout, "%s: %s\n", file, reference(s.name, *version))
	}
	return nil
}
