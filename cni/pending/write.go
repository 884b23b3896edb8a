// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

const (
	// MaxFiles bounds the folder: some forty times the Pods of a full node. A
	// node whose daemon never comes back must not fill its disk.
	MaxFiles = 4096
	// suffix ends the names of complete files.
	suffix = ".json"
	// partial begins the names of files that are still being written.
	partial = ".partial-"
)

// ErrFull says that MaxFiles DELs are waiting already.
var ErrFull = errors.New("too many pending requests")

// FileName is the name for a sandbox's interface: a hash, since a container ID
// is outside input, and the same for a repeated DEL.
func FileName(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	return hex.EncodeToString(sum[:16]) + suffix
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
	if err := room(dir, path); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, partial+"*")
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

// room refuses a new file in a full folder; a repeated DEL replaces its own.
func room(dir, path string) error {
	names, err := complete(dir)
	if err != nil || len(names) < MaxFiles {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %d in %s", ErrFull, len(names), dir)
	}
	return nil
}

// syncDir puts renames and removals in the folder on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
