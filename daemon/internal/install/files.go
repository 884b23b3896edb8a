// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// partialPrefix is the prefix of files that are being written. Runtimes only read files whose names
// end in .conf, .conflist or .json.
const partialPrefix = ".patchbay-partial-"

// writeFile writes the file unless it has this content already. A runtime reloads its network on each
// change in its folder.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	same, err := hasContent(path, content, mode)
	if same || err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := removePartialFiles(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, partialPrefix)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncDir(dir)
}

// hasContent reports whether the file has this content and mode. It returns false for a symbolic link,
// whose target is not Patchbay's file.
func hasContent(path string, content []byte, mode fs.FileMode) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, fmt.Errorf("%s: %w: must not be a folder", path, fs.ErrExist)
	}
	if info.Mode() != mode || info.Size() != int64(len(content)) {
		return false, nil
	}
	old, err := os.ReadFile(path)
	return bytes.Equal(old, content), err
}

// removeFile removes a file from disk. A missing file is no error.
func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// removePartialFiles removes the files that a killed daemon was writing.
func removePartialFiles(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, partialPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// syncDir writes a folder's entries to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
