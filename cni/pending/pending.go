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
	// MaxFiles bounds the folder: some forty times the Pods of a full node. A
	// node whose daemon never comes back must not fill its disk.
	MaxFiles = 4096
	// completeSuffix ends the names of complete files.
	completeSuffix = ".json"
	// partialPrefix begins the names of files that are still being written.
	partialPrefix = ".partial-"
)

// ErrFull says that MaxFiles DELs are waiting already.
var ErrFull = errors.New("too many pending requests")

// ErrMalformed says that a file is not a request for the sandbox that it is named for.
var ErrMalformed = errors.New("bad pending request")

// FileName is the name for a sandbox's interface: a hash, since a container ID
// is outside input, and the same for a repeated DEL.
func FileName(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	return hex.EncodeToString(sum[:16]) + completeSuffix
}

// Write puts the request into the folder, which it makes when missing. It is on
// disk when Write returns.
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

// MakeDir makes the folder when it is missing, and puts its name on disk: a file
// in a folder that a power cut takes back is lost as well.
func MakeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// checkRoom refuses a new file in a full folder; a repeated DEL replaces its own.
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

// List returns the names of the complete files, sorted; a folder that is
// missing is empty.
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
		return nil, fmt.Errorf("read pending request %s: %w: %w", name, ErrMalformed, err)
	}
	if want := FileName(req.ContainerID, req.IfName); want != name {
		return nil, fmt.Errorf("read pending request %s: %w: container %q, interface %q belong to %s",
			name, ErrMalformed, req.ContainerID, req.IfName, want)
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

// partialMaxAge is the age at which a partial file has no writer any more.
const partialMaxAge = time.Minute

// RemoveStalePartials removes partial files that killed plugins left.
func RemoveStalePartials(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep pending requests: %w", err)
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

// syncDir puts renames and removals in the folder on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
