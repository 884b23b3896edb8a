// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

const (
	// MaxFiles is the most files in the directory, about forty times the Pods of a full node: a
	// node whose daemon does not run any more must not fill its disk.
	MaxFiles = 4096
	// completeSuffix is the suffix of complete files.
	completeSuffix = ".json"
	// partialPrefix is the prefix of files that are being written.
	partialPrefix = ".partial-"
)

// ErrFull means that the directory has MaxFiles DELs.
var ErrFull = errors.New("too many pending requests")

// ErrMalformed means that a file is not a request, or not for the interface of its name.
var ErrMalformed = errors.New("malformed pending request")

// FileName returns the name of the file for a sandbox's interface. It is a hash, as a container ID
// is untrusted, and the same for a repeated DEL.
func FileName(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	return hex.EncodeToString(sum[:16]) + completeSuffix
}

// Write writes the request to the directory, which it creates if it is missing. The file is on disk
// when Write returns.
func Write(dir string, req *wire.Request) error {
	if err := write(dir, req); err != nil {
		return fmt.Errorf("write pending %s: %w", req.Command, err)
	}
	return nil
}

func write(dir string, req *wire.Request) error {
	doc, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if err := MakeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, FileName(req.ContainerID, req.IfName))
	if err := checkRoom(dir, path); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, partialPrefix+"*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(doc)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return err
	}
	return syncDir(dir)
}

// MakeDir creates the directory if it is missing, and syncs its parent: otherwise the directory and
// its files could be lost if the power fails.
func MakeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// checkRoom returns ErrFull for a new file in a full directory; a repeated DEL replaces its file.
func checkRoom(dir, path string) error {
	names, err := listComplete(dir)
	if err != nil || len(names) < MaxFiles {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %d in %s", ErrFull, len(names), dir)
	}
	return nil
}

// List returns the names of the complete files, sorted. A missing directory is empty.
func List(dir string) ([]string, error) {
	names, err := listComplete(dir)
	if err != nil {
		return nil, fmt.Errorf("list pending requests: %w", err)
	}
	return names, nil
}

func listComplete(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), completeSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read returns the request of a file. The error wraps ErrMalformed if a retry cannot succeed.
func Read(dir, name string) (*wire.Request, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read pending request: %w", err)
	}
	defer func() { _ = f.Close() }()
	doc, err := io.ReadAll(io.LimitReader(f, 2*wire.MaxFrame))
	if err != nil {
		return nil, fmt.Errorf("read pending request %s: %w", name, err)
	}
	req := &wire.Request{}
	if err := json.Unmarshal(doc, req); err != nil {
		return nil, fmt.Errorf("read pending request %s: %w: %w", name, ErrMalformed, err)
	}
	if want := FileName(req.ContainerID, req.IfName); want != name {
		return nil, fmt.Errorf("read pending request %s: %w: the file of container %q, interface %q must be %s",
			name, ErrMalformed, req.ContainerID, req.IfName, want)
	}
	return req, nil
}

// Remove removes a file, also from disk when it returns. A missing file is not an error.
func Remove(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("remove pending request: %w", err)
	}
	return nil
}

// SetAside renames a malformed file, so that it is not read again and an administrator can inspect
// it.
func SetAside(dir, name string) error {
	path := filepath.Join(dir, name)
	if err := os.Rename(path, path+".bad"); err != nil {
		return fmt.Errorf("set pending request aside: %w", err)
	}
	return nil
}

// partialMaxAge is the age from which on a partial file has no writer.
const partialMaxAge = time.Minute

// RemoveStalePartials removes the partial files that killed plugins left.
func RemoveStalePartials(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list partial files of pending requests: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), partialPrefix) || now.Sub(info.ModTime()) < partialMaxAge {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

// syncDir writes the directory's entries to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
