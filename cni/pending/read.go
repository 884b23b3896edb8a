// SPDX-License-Identifier: Apache-2.0

package pending

import (
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

// ErrBad says that a file is not a request for the sandbox that it is named for.
var ErrBad = errors.New("bad pending request")

// stale is the age at which a partial file has no writer any more.
const stale = time.Minute

// List returns the names of the complete files, sorted; a folder that is
// missing is empty.
func List(dir string) ([]string, error) {
	names, err := complete(dir)
	if err != nil {
		return nil, fmt.Errorf("list pending requests: %w", err)
	}
	return names, nil
}

func complete(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read returns the request of one file. Errors answer to fs.ErrNotExist or, when
// reading again would not help, to ErrBad.
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
		return nil, fmt.Errorf("read pending request %s: %w: %w", name, ErrBad, err)
	}
	if want := FileName(req.ContainerID, req.IfName); want != name {
		return nil, fmt.Errorf("read pending request %s: %w: container %q, interface %q belong to %s",
			name, ErrBad, req.ContainerID, req.IfName, want)
	}
	return req, nil
}

// Remove takes a file away, on disk when it returns; a missing one is no error.
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

// SetAside renames a file that cannot be read, so that it is neither tried
// again nor lost to whoever looks for what it was.
func SetAside(dir, name string) error {
	path := filepath.Join(dir, name)
	if err := os.Rename(path, path+".bad"); err != nil {
		return fmt.Errorf("set pending request aside: %w", err)
	}
	return nil
}

// Sweep removes partial files that killed plugins left.
func Sweep(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep pending requests: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), partial) || now.Sub(info.ModTime()) < stale {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
