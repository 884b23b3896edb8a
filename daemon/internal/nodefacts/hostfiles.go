// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// HostFiles are the files of a node whose root file system is mounted at Root. Links are resolved as the node's
// programs resolve them: absolute links are below Root, and ".." does not leave it.
type HostFiles struct {
	Root string
}

var _ fs.StatFS = HostFiles{}

// Open implements fs.FS.
func (h HostFiles) Open(name string) (fs.File, error) {
	// Without O_NONBLOCK, the open of a named pipe would block.
	return h.open("open", name, unix.O_RDONLY|unix.O_NONBLOCK)
}

// Stat implements fs.StatFS.
func (h HostFiles) Stat(name string) (fs.FileInfo, error) {
	f, err := h.open("stat", name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Stat()
}

// resolve returns the path, below Root, to which the links of a path of the node lead.
func (h HostFiles) resolve(name string) (string, error) {
	f, err := h.open("resolve", name, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// open opens a path. Its errors have the path on the node.
func (h HostFiles) open(action, name string, flags uint64) (*os.File, error) {
	root, err := os.Open(h.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return nil, &fs.PathError{Op: action, Path: filepath.Join("/", name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
