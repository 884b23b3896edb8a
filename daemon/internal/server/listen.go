// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrInUse says that something that is not a daemon's leftover has the socket's
// path.
var ErrInUse = errors.New("socket is in use")

// probeTimeout bounds the look for another daemon behind the socket.
const probeTimeout = time.Second

// listener is a unix socket that removes its own file, and no later one, when
// it is closed.
type listener struct {
	*net.UnixListener
	path  string
	file  os.FileInfo
	close func() error
}

// listen makes the socket, which only root may use, in place of one that a
// killed daemon left. The socket is bound under another name in a folder of its
// own and renamed, so that it is never there with wider permissions, and a
// plugin finds the old file or a socket that answers.
func listen(path string) (*listener, error) {
	l, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func bind(path string) (*listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := checkVacant(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	tmp := filepath.Join(private, "s")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	u.SetUnlinkOnClose(false)
	l := &listener{UnixListener: u, path: path}
	l.close = sync.OnceValue(l.removeAndClose)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	l.file, err = os.Lstat(path)
	return l, err
}

// checkVacant refuses a path where something other than a dead socket is.
func checkVacant(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: it is not a socket but %s", ErrInUse, info.Mode())
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: another daemon listens there", ErrInUse)
	}
	return nil
}

// Close stops listening and removes the socket's file. It may be called twice.
func (l *listener) Close() error { return l.close() }

func (l *listener) removeAndClose() error {
	var err error
	if now, gone := os.Lstat(l.path); gone == nil && os.SameFile(now, l.file) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close())
}
