// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxConfig is the largest configuration file in bytes; it is journalled with
// every attachment.
const maxConfig = 64 << 10

// readConfig reads the network's configuration list from the folder: of
// <id>.conflist, or <id>.conf as a list of one.
func readConfig(dir, id string) ([]byte, error) {
	if !fileName.MatchString(id) {
		return nil, fmt.Errorf("NetworkID %q is no file name", id)
	}
	list, listErr := readFile(dir, id+".conflist")
	single, err := readFile(dir, id+".conf")
	noList, noSingle := errors.Is(listErr, fs.ErrNotExist), errors.Is(err, fs.ErrNotExist)
	switch {
	case noList && noSingle:
		return nil, fmt.Errorf("the delegate's configuration is missing: neither %[1]s.conflist nor %[1]s.conf exists on this node",
			filepath.Join(dir, id))
	case listErr != nil && !noList:
		return nil, listErr
	case noSingle:
		return list, nil
	case err != nil:
		return nil, err
	case noList:
		return listOf(single)
	}
	return nil, fmt.Errorf("the delegate's configuration is there twice: remove %[1]s.conflist or %[1]s.conf", filepath.Join(dir, id))
}

// readFile reads a regular file of the folder. Links that lead out of it are
// refused; those within are how Kubernetes mounts a ConfigMap.
func readFile(dir, name string) (data []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open configuration folder: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Without O_NONBLOCK a named pipe would hold the ADD up for ever.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read configuration in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return nil, fmt.Errorf("read configuration %s: %s of %d bytes, want a file of at most %d",
			filepath.Join(dir, name), info.Mode().Type(), info.Size(), maxConfig)
	}
	data, err = io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}
