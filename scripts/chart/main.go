// SPDX-License-Identifier: Apache-2.0

// Command chart writes the Helm charts from the manifests:
//
//	go run ./scripts/chart deployments charts
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/scripts/internal/chart"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes all charts, in place of what is in their folders.
func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: chart DEPLOYMENTS CHARTS")
	}
	files, err := chart.Files(args[0], chart.Development())
	if err != nil {
		return err
	}
	for _, name := range chart.Names() {
		if err := os.RemoveAll(filepath.Join(args[1], name)); err != nil {
			return fmt.Errorf("remove the former chart: %w", err)
		}
	}
	for name, content := range files {
		path := filepath.Join(args[1], name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write chart: %w", err)
		}
	}
	return nil
}
