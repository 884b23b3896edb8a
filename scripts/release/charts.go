// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/scripts/internal/chart"
)

// writeCharts writes an archive of each Helm chart, with the images of the release.
func writeCharts(r release, dir string) error {
	of := chart.Release{Version: r.Version, Registry: r.Registry}
	files, err := chart.Files(filepath.Join(r.Source, "deployments"), of)
	if err != nil {
		return fmt.Errorf("make charts: %w", err)
	}
	for _, name := range chart.Names() {
		var in []packed
		for _, path := range slices.Sorted(maps.Keys(files)) {
			if strings.HasPrefix(path, name+"/") {
				in = append(in, packed{name: path, mode: 0o644, content: files[path]})
			}
		}
		content, err := tarOf(in, r.Time)
		if err != nil {
			return fmt.Errorf("pack chart %s: %w", name, err)
		}
		if err := writeFile(filepath.Join(dir, "charts", of.Archive(name)), content); err != nil {
			return err
		}
	}
	return nil
}
