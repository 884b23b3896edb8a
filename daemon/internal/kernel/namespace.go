// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netNamespace is an open network namespace.
type netNamespace struct {
	fd   netns.NsHandle
	path string
}

// openNamespace opens path. It returns ErrNamespaceGone for a missing file, and for one that is
// not a namespace: the file of a deleted namespace can stay without the mount.
func openNamespace(path string) (*netNamespace, error) {
	fd, err := openNamespaceFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNamespaceGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	ns := &netNamespace{fd: netns.NsHandle(fd), path: path}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, errClose(err, ns))
	}
	if fs.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("open %s: %w", path, errClose(ErrNamespaceGone, ns))
	}
	return ns, nil
}

// openNamespaceFile opens path, or the path without /var if path does not exist.
func openNamespaceFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if other, ok := trimVar(path); ok && errors.Is(err, unix.ENOENT) {
		return unix.Open(other, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// trimVar turns /var/run/x into /run/x: runtimes use the old name, and the daemon's image has no
// link for it.
func trimVar(path string) (string, bool) {
	rest, old := strings.CutPrefix(path, "/var/run/")
	return "/run/" + rest, old
}

// Close closes the descriptor; the namespace stays.
func (ns *netNamespace) Close() error { return ns.fd.Close() }

// dial opens a socket in ns. The caller may be in any namespace.
func (ns *netNamespace) dial() (c *conn, err error) {
	err = ns.do(func() error {
		c, err = dial()
		return err
	})
	return c, err
}

// do runs fn on a thread that is in ns, and returns the thread to its own namespace. A thread that
// cannot return stays locked to its goroutine, and ends with it.
func (ns *netNamespace) do(fn func() error) error {
	done := make(chan error)
	go func() { done <- ns.doOnThread(fn) }()
	return <-done
}

func (ns *netNamespace) doOnThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread() // it did not leave its namespace
		return fmt.Errorf("open the thread's own namespace: %w", err)
	}
	defer home.Close()
	if err := netns.Set(ns.fd); err != nil {
		runtime.UnlockOSThread() // it did not leave its namespace
		return fmt.Errorf("enter %s: %w", ns.path, err)
	}
	err = fn()
	if back := netns.Set(home); back == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// errClose closes c and returns err, joined with the error of closing.
func errClose(err error, c interface{ Close() error }) error {
	return errors.Join(err, c.Close())
}
