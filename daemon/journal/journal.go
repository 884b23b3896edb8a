// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// DefaultPath is where the daemon's journal is on the host.
const DefaultPath = "/var/lib/patchbay/journal.db"

// DefaultWait is how long Open waits for the lock: during a rollout the Pod
// before ours ends its requests first, at most its grace period of 30 s.
const DefaultWait = 30 * time.Second

// ErrLocked says that another daemon has the journal open.
var ErrLocked = errors.New("journal is locked")

// ErrCorrupt says that the file, or a record in it, is not what was written.
var ErrCorrupt = errors.New("journal is damaged")

// Journal is an open journal. It is safe for concurrent use.
type Journal struct {
	db     *bbolt.DB
	holder string
	commit *committer
}

var _ attach.Journal = (*Journal)(nil)

// Options are the choices of Open; the zero value is for tests.
type Options struct {
	// Holder tells a person who has the lock, for example the Pod's name.
	Holder string
	// Wait bounds the wait for the lock; 0 tries once.
	Wait time.Duration
}

// Open opens the journal at path, or makes an empty one, and keeps its lock
// until Close. Errors answer to ErrLocked, ErrSchema or ErrCorrupt.
func Open(path string, o Options) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{holder: path + ".holder"}
	err := guard(func() error { return j.open(path, o) })
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) open(path string, o Options) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		// bbolt takes 0 for "for ever"; it looks every 50 ms.
		Timeout: max(o.Wait, time.Millisecond),
		// Synced, although it is a page more per commit: else bbolt walks all
		// pages at start in a goroutine of its own, where a damaged one would
		// end the process.
		NoFreelistSync: false,
		FreelistType:   bbolt.FreelistMapType,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w by %s", ErrLocked, readHolder(j.holder))
	}
	if err != nil {
		return damaged(err)
	}
	j.db = db
	j.commit = newCommitter(db)
	if err := errors.Join(prepare(db), writeHolder(j.holder, o.Holder), syncDir(filepath.Dir(path))); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// Close gives the lock back. No other method may be running.
func (j *Journal) Close() error {
	// While the lock is still ours, so that the next holder's is not removed.
	_ = os.Remove(j.holder)
	if err := j.db.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// damaged tells bbolt's opinions on the file's content from errors of reading it.
func damaged(err error) error {
	for _, sign := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, sign) {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return err
}

// syncDir puts a new file's name on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
