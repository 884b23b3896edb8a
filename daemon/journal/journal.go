// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
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

// lockEvery is the time between two tries to get the lock.
const lockEvery = 50 * time.Millisecond

// Open is OpenContext for whoever cannot be told to stop.
func Open(path string, o Options) (*Journal, error) {
	return OpenContext(context.Background(), path, o)
}

// OpenContext opens the journal at path, or makes an empty one, and keeps its lock
// until Close. Errors answer to ErrLocked, ErrSchema or ErrCorrupt, or to that of ctx
// when it ends while the lock is waited for.
func OpenContext(ctx context.Context, path string, o Options) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{holder: path + ".holder"}
	err := guard(func() error { return j.open(ctx, path, o) })
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) open(ctx context.Context, path string, o Options) error {
	db, err := lock(ctx, path, o.Wait)
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w by %s", ErrLocked, readHolder(j.holder))
	}
	if err != nil {
		return damaged(err)
	}
	j.db = db
	j.commit = newCommitter(db)
	if err := errors.Join(check(db), writeHolder(j.holder, o.Holder), syncDir(filepath.Dir(path))); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// check prepares the file, and keeps in mind what its last commit lost.
func check(db *bbolt.DB) error {
	lost, err := verify(db)
	if err != nil {
		return err
	}
	if err := prepare(db); err != nil || !lost {
		return err
	}
	return markRollback(db)
}

// lock opens the file, as soon as nobody else has it open.
func lock(ctx context.Context, path string, wait time.Duration) (*bbolt.DB, error) {
	for end := time.Now().Add(wait); ; {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{
			// One try: bbolt itself would wait whatever becomes of ctx.
			Timeout: time.Millisecond,
			// Synced, although it is a page more per commit: else bbolt walks all
			// pages at start in a goroutine of its own, where a damaged one would
			// end the process.
			NoFreelistSync: false,
			FreelistType:   bbolt.FreelistMapType,
		})
		if !errors.Is(err, berrors.ErrTimeout) || !time.Now().Before(end) {
			return db, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockEvery):
		}
	}
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
