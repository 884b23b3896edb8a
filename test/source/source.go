// SPDX-License-Identifier: Apache-2.0

// Package source finds the files of this repository from tests and from the lab's
// programs, wherever in the work tree they are started.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrOutside says that the working folder is not within a work tree of this repository.
var ErrOutside = errors.New("not within the source tree of patchbay")

// Path returns the absolute path of a file or folder named from the repository's root.
// Whether it exists is not looked at.
func Path(elements ...string) (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find source tree: %w", err)
	}
	root, err := rootOf(start)
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root}, elements...)...), nil
}

// Inputs makes every file of the repository an input of the running test. go test reuses a
// test's result as long as the files that the test itself has opened are the same; of what a
// program that it starts reads, such as a compiler, it knows nothing.
func Inputs() error {
	root, err := Path()
	if err != nil {
		return err
	}
	// Reading a folder is enough: go test then compares the size and time of each entry.
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && (path == filepath.Join(root, "bin") || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list files of the repository: %w", err)
	}
	return nil
}

// rootOf walks up to the folder of the product's go.mod; other modules lie within.
func rootOf(start string) (string, error) {
	const first = "module github.com/patchbay-cni/patchbay\n"
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte(first)) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find source tree from %s: %w", start, ErrOutside)
		}
	}
}
