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

// registry is a name that no resolver answers, so that a node without the image
// fails at once instead of asking another registry for it.
const registry = "patchbay.local"

// develTag is the tag that the manifests in deployments/ name until a version is
// set; each archive carries it besides its version.
const develTag = "devel"

// spec is one image: programs from bin/ at the root of an empty file system.
type spec struct {
	// name of the image and of its archive.
	name string
	// programs are copied to /<program>, with their folder if they have one; the first is the
	// entry point.
	programs []string
	// description for people who list images.
	description string
}

// specs are the images of this repository.
func specs() []spec {
	return []spec{{
		name: "patchbayd",
		// The daemon copies the plugin to the node's CNI folder at start.
		programs:    []string{"patchbayd", "patchbay"},
		description: "Patchbay's node daemon and its CNI plugin",
	}, {
		name:        "patchbay-controller",
		programs:    []string{"patchbay-controller"},
		description: "Patchbay's controller",
	}, {
		name:        "patchbay-agent",
		programs:    []string{"patchbay-agent"},
		description: "Patchbay's agent in a workload cluster",
	}, {
		name: "patchbay-hub",
		// The programs of Kubernetes are for `patchbay-hub up --bin-dir /kubernetes`.
		programs:    []string{"patchbay-hub", "kubernetes/kube-apiserver", "kubernetes/kube-controller-manager", "kubernetes/etcd"},
		description: "Patchbay's hub, beside an API server that runs no workload controllers",
	}}
}

// reference is the full name of an image.
func reference(name, tag string) string {
	return registry + "/" + name + ":" + tag
}
