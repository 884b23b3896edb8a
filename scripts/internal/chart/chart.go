// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/version"
)

// written has the files of the charts that are written by hand.
//
//go:embed all:files
var written embed.FS

// Release is what the charts install.
type Release struct {
	// Version is the tag of the images, such as v0.1.0. It is also the version of the charts, without the v.
	Version string
	// Registry is where the images are.
	Registry string
}

// Development is the release of a work tree.
func Development() Release {
	return Release{Version: version.DevelopmentTag, Registry: version.LocalRegistry}
}

// chartVersion is a semantic version.
func (r Release) chartVersion() string {
	if r.Version == version.DevelopmentTag {
		return "0.0.0-" + version.DevelopmentTag
	}
	return strings.TrimPrefix(r.Version, "v")
}

// Archive returns the name of a chart's archive, in the form that Helm gives it.
func (r Release) Archive(name string) string { return name + "-" + r.chartVersion() + ".tgz" }

// Names of the charts, which are folders.
const (
	workloads   = "patchbay"
	definitions = "patchbay-crds"
)

// Names returns the names of the charts.
func Names() []string { return []string{workloads, definitions} }

// Files returns the files of all charts by their paths, which begin with the name of the chart. It reads the
// folder deployments.
func Files(deployments string, r Release) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(written, "files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, "files/")
		files[name], err = written.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files that are written by hand: %w", err)
	}
	for name, generate := range map[string]func(string) (map[string][]byte, error){
		workloads: r.workloadFiles, definitions: r.definitionFiles,
	} {
		made, err := generate(deployments)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", name, err)
		}
		maps.Copy(files, under(name, made))
		files[name+"/Chart.yaml"] = r.metadata(name)
	}
	return files, nil
}

func under(folder string, files map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(files))
	for name, content := range files {
		out[filepath.Join(folder, name)] = content
	}
	return out
}

// metadata returns the Chart.yaml of a chart.
func (r Release) metadata(name string) []byte {
	description := map[string]string{
		workloads:   "More than one network for Pods on bare metal: the programs, with their rights, policies and webhooks",
		definitions: "The CustomResourceDefinitions of Patchbay, which stay when the release is uninstalled",
	}[name]
	return []byte(header + fmt.Sprintf(`apiVersion: v2
name: %s
description: %q
type: application
version: %s
appVersion: %s
kubeVersion: ">=1.31.0-0"
home: https://github.com/patchbay-cni/patchbay
sources: [https://github.com/patchbay-cni/patchbay]
`, name, description, r.chartVersion(), r.Version))
}

// header begins each file that is not written by hand.
const header = "# Generated from deployments/ by `make generate`. Do not edit.\n"
