// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// build builds all programs into dir, below which each platform has a folder.
func build(r release, p product.Product, dir string, stdout io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find output folder: %w", err)
	}
	builds := p.Builds()
	for _, platform := range slices.SortedFunc(maps.Keys(builds), func(a, b product.Platform) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		for _, c := range commands(r, platform, builds[platform], filepath.Join(dir, platform.String())) {
			fmt.Fprintf(stdout, "%s: %s\n", platform, strings.Join(c, " "))
			if err := runBuild(c, r.Source, platform, stdout); err != nil {
				return err
			}
		}
	}
	return nil
}

// commands returns the commands that build programs for one platform into dir.
func commands(r release, platform product.Platform, programs []product.Program, dir string) [][]string {
	byModule := map[string][]product.Program{}
	for _, p := range programs {
		byModule[p.Module] = append(byModule[p.Module], p)
	}
	const path = "github.com/patchbay-cni/patchbay/internal/version."
	flags := "-s -w -X " + path + "version=" + r.Version + " -X " + path + "registry=" + r.Registry
	var all [][]string
	for _, p := range byModule[product.Root] {
		file := filepath.Join(dir, platform.Executable(p.Name))
		all = append(all, []string{"go", "build", "-tags", product.Tags, "-ldflags", flags, "-o", file, p.Package})
	}
	if kubernetes := byModule[product.Kubernetes]; len(kubernetes) > 0 {
		c := []string{"scripts/build-kubernetes", filepath.Join(dir, "kubernetes"), "."}
		for _, p := range kubernetes {
			c = append(c, filepath.Base(p.Name))
		}
		all = append(all, c)
	}
	for _, p := range byModule[product.Etcd] {
		all = append(all, []string{"scripts/build-etcd", filepath.Join(dir, p.Name)})
	}
	return all
}

// runBuild runs a command in a work tree for a platform.
func runBuild(command []string, source string, platform product.Platform, output io.Writer) error {
	environment, err := buildEnvironment(source, platform)
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = source, environment
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s: %s: %w", platform, strings.Join(command, " "), err)
	}
	return nil
}

// buildEnvironment returns the environment of builds for a platform. Variables that would change the programs have fixed
// values, and Go does not read the settings of `go env -w`, so that it does not matter who builds. Settings that say where
// Go gets modules and toolchains from, and where it stores files, remain those of the user.
func buildEnvironment(source string, platform product.Platform) ([]string, error) {
	kept := []string{
		"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH",
		"GOTOOLCHAIN", "GOMODCACHE", "GOCACHE", "GOTMPDIR",
	}
	cmd := exec.Command("go", append([]string{"env"}, kept...)...)
	cmd.Dir, cmd.Stderr = source, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read settings of Go: %w", err)
	}
	environment := os.Environ()
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		environment = append(environment, kept[i]+"="+value)
	}
	return append(
		environment,
		"GOENV=off", "GOOS="+platform.OS, "GOARCH="+platform.Arch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GO111MODULE=on",
		"GO_EXTLINK_ENABLED=", "GODEBUG=", "GOROOT=",
	), nil
}
