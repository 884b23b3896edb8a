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

// ErrInUse means that another daemon or another file has the socket's path.
var ErrInUse = errors.New("socket is in use")

// probeTimeout bounds the check whether another daemon listens on the socket.
const probeTimeout = time.Second

// listener is a Unix socket that removes its own file when it is closed, and not the file of a later
// daemon.
type listener struct {
	*net.UnixListener
	path  string
	file  os.FileInfo
	close func() error
}

// listen creates the socket, which only root may use, and replaces the socket of a killed daemon. It
// binds the socket in a private folder and renames it. The socket therefore never has wider
// permissions, and a plugin finds either the old file or a socket that answers.
func listen(path string) (*listener, error) {
	l, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// bind creates the socket at its path.
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

// checkVacant returns ErrInUse if the path has anything but the socket of a killed daemon.
func checkVacant(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: must be a socket, but has mode %s", ErrInUse, info.Mode())
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

// removeAndClose removes the file if it is still the listener's, and closes the socket.
func (l *listener) removeAndClose() error {
	var err error
	if now, gone := os.Lstat(l.path); gone == nil && os.SameFile(now, l.file) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close())
}
