// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumsFile has the checksums of all other files, in the form that sha256sum reads.
const sumsFile = "SHA256SUMS"

// writeSums writes the checksums of the files in dir, in the order of their names.
func writeSums(dir string) error {
	var sums strings.Builder
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), path)
		return nil
	})
	if err != nil {
		return fmt.Errorf("add up the files of the release: %w", err)
	}
	return writeFile(filepath.Join(dir, sumsFile), []byte(sums.String()))
}
