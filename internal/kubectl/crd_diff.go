// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/crdcompiler"
)

// exitDiffer is the exit code of `crd compile --diff` if the results differ, as that of terraform plan.
const exitDiffer = 2

// comparison is one call of `crd compile --diff`.
type comparison struct {
	out io.Writer
	// path is a folder with a file for each result, or a file with all.
	path     string
	isFolder bool
	// differ counts the results that differ, and those of earlier calls that no template makes any more.
	differ int
}

// run prints the differences, and fails if there are some.
func (c *comparison) run(crds []*crdcompiler.CRD, minors []string) error {
	results := map[string][]*crdcompiler.CRD{}
	var files []string
	for _, crd := range crds {
		file := c.path
		if c.isFolder {
			file = filepath.Join(c.path, crd.Path())
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		results[file] = append(results[file], crd)
	}
	if c.isFolder {
		for _, minor := range minors {
			others, err := filepath.Glob(filepath.Join(escapePattern(filepath.Join(c.path, minor)), "*.yaml"))
			if err != nil {
				return fmt.Errorf("list folder of results: %w", err)
			}
			files = append(files, slices.DeleteFunc(others, func(file string) bool { return results[file] != nil })...)
		}
	}
	for _, file := range files {
		if err := c.compareFile(file, results[file]); err != nil {
			return err
		}
	}
	if c.differ > 0 {
		return app.WithExitCode(fmt.Errorf("%d CustomResourceDefinitions differ from the %d that the templates make: compile them again", c.differ, len(crds)), exitDiffer)
	}
	return nil
}

// escapePattern returns the pattern that matches a path only.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// compareFile compares a file with the results that should be in it.
func (c *comparison) compareFile(file string, crds []*crdcompiler.CRD) error {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read CustomResourceDefinition: %w", err)
	}
	isMissing := err != nil
	found, err := crdcompiler.ReadCRDs(data)
	if err != nil && len(crds) == 0 {
		return nil // a file that another tool has written into the folder
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, crd := range crds {
		i := slices.IndexFunc(found, func(f *crdcompiler.CRD) bool { return f.Name == crd.Name })
		switch {
		case isMissing:
			err = c.report(file, "+ the file is missing")
		case i < 0:
			err = c.report(file, "+ "+crd.Name+" is missing")
		default:
			err = c.report(file, crd.Diff(found[i])...)
			found = slices.Delete(found, i, i+1)
		}
		if err != nil {
			return err
		}
	}
	for _, other := range found {
		// A file that no template makes may be of another tool.
		if other.Source == "" && (!c.isFolder || len(crds) == 0) {
			continue
		}
		if err := c.report(file, "- "+other.Name+" is made by no template"); err != nil {
			return err
		}
	}
	return nil
}

// report prints the differences of one result, if there are some.
func (c *comparison) report(file string, lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	c.differ++
	_, err := fmt.Fprintf(c.out, "%s\n  %s\n", file, strings.Join(lines, "\n  "))
	return err
}
