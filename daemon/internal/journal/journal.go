// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// DefaultPath is the path of the daemon's journal on the host.
const DefaultPath = "/var/lib/patchbay/journal.db"

// DefaultWait is how long Open waits for the lock, which the old Pod has until it has completed its requests. If that takes
// longer, this daemon exits, and kubelet starts it again. It is below what the startup probe allows.
const DefaultWait = 30 * time.Second

// ErrLocked means that another daemon has the journal open.
var ErrLocked = errors.New("journal is locked")

// ErrCorrupt means that the file or a record in it differs from what was written.
var ErrCorrupt = errors.New("journal is damaged")

// Journal is an open journal. It is safe for concurrent use.
type Journal struct {
	db     *bbolt.DB
	holder string
	commit *committer
}

// Options configures Open. The zero value is for tests.
type Options struct {
	// Holder names the holder of the lock in error messages, for example the Pod's name.
	Holder string
	// Wait bounds the wait for the lock. With 0, Open tries once.
	Wait time.Duration
}

// Open is OpenContext with a context that never ends.
func Open(path string, o Options) (*Journal, error) {
	return OpenContext(context.Background(), path, o)
}

// OpenContext opens the journal at path, or creates an empty one, and locks it until Close. The
// error wraps ErrLocked, ErrSchema or ErrCorrupt, or the error of ctx when ctx ends during the
// wait for the lock.
func OpenContext(ctx context.Context, path string, o Options) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{holder: path + ".holder"}
	err := catchPanic(func() error { return j.open(ctx, path, o) })
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, nil
}

// open opens the file and takes its lock.
func (j *Journal) open(ctx context.Context, path string, o Options) error {
	db, err := openLocked(ctx, path, o.Wait)
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w by %s", ErrLocked, readHolder(j.holder))
	}
	if err != nil {
		return asCorrupt(err)
	}
	j.db = db
	j.commit = newCommitter(db)
	if err := errors.Join(prepareFile(db), writeHolder(j.holder, o.Holder), syncDir(filepath.Dir(path))); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// lockRetryInterval is the time between two attempts to take the lock.
const lockRetryInterval = 50 * time.Millisecond

// openLocked opens the file as soon as no other process has it open.
func openLocked(ctx context.Context, path string, wait time.Duration) (*bbolt.DB, error) {
	for end := time.Now().Add(wait); ; {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{
			// bbolt would not stop waiting when ctx ends.
			Timeout: time.Millisecond,
			// A synced freelist costs one more page per commit. Without it, bbolt reads all
			// pages at start in a goroutine of its own, where a corrupt page would end the
			// process.
			NoFreelistSync: false,
			FreelistType:   bbolt.FreelistMapType,
		})
		if !errors.Is(err, berrors.ErrTimeout) || !time.Now().Before(end) {
			return db, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockRetryInterval):
		}
	}
}

// writeHolder writes a line about the holder of the lock. The kernel only knows its PID, which has
// no meaning in the PID namespace of another container.
func writeHolder(path, name string) error {
	line := fmt.Sprintf("%s (pid %d) since %s\n",
		cmp.Or(name, "another daemon"), os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	return os.WriteFile(path, []byte(line), 0o600)
}

// readHolder returns the line about the holder.
func readHolder(path string) string {
	line, err := os.ReadFile(path)
	if err != nil {
		return "an unknown process"
	}
	return strings.TrimSpace(string(line))
}

// syncDir writes the name of a new file to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close releases the lock. No other method may run.
func (j *Journal) Close() error {
	// Before the lock is released: afterwards, the file would be that of the next holder.
	_ = os.Remove(j.holder)
	if err := j.db.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// Get returns the record. The error wraps attach.ErrNotFound, or ErrCorrupt with the key.
func (j *Journal) Get(containerID, ifName string) (*attach.Record, error) {
	k, err := recordKey(containerID, ifName)
	if err != nil {
		return nil, err
	}
	var rec *attach.Record
	err = j.view(func(records *bbolt.Bucket) error {
		value := records.Get(k)
		if value == nil {
			return attach.ErrNotFound
		}
		rec, err = decodeRecord(k, value)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get record %q: %w", formatKey(k), err)
	}
	return rec, nil
}

// Put writes the record. It is on disk when Put returns.
func (j *Journal) Put(rec *attach.Record) error {
	k, err := recordKey(rec.ContainerID, rec.IfName)
	if err != nil {
		return err
	}
	value, err := encodeRecord(rec)
	if err != nil {
		return err
	}
	if err := j.commit.apply(change{key: k, value: value}); err != nil {
		return fmt.Errorf("put record %q: %w", formatKey(k), err)
	}
	return nil
}

// Update reads a record and writes what edit makes of it in one transaction, so that no concurrent
// change is lost. When edit returns an error, Update returns it and leaves the record unchanged. It
// returns attach.ErrNotFound when there is no record. edit must not change the record's key.
func (j *Journal) Update(containerID, ifName string, edit func(*attach.Record) error) error {
	k, err := recordKey(containerID, ifName)
	if err != nil {
		return err
	}
	var editErr error
	err = j.commit.apply(change{key: k, edit: func(stored []byte) []byte {
		var value []byte
		value, editErr = applyEdit(k, stored, edit)
		return value
	}})
	if err == nil {
		err = editErr
	}
	if err != nil {
		return fmt.Errorf("update record %q: %w", formatKey(k), err)
	}
	return nil
}

// applyEdit returns the stored value of a record after edit.
func applyEdit(k, stored []byte, edit func(*attach.Record) error) ([]byte, error) {
	if stored == nil {
		return nil, attach.ErrNotFound
	}
	rec, err := decodeRecord(k, stored)
	if err != nil {
		return nil, err
	}
	if err := edit(rec); err != nil {
		return nil, err
	}
	return encodeRecord(rec)
}

// Delete removes the record from disk. A missing record costs no write.
func (j *Journal) Delete(containerID, ifName string) error {
	k, err := recordKey(containerID, ifName)
	if err != nil {
		return err
	}
	exists := false
	err = j.view(func(records *bbolt.Bucket) error {
		exists = records.Get(k) != nil
		return nil
	})
	if err == nil && exists {
		err = j.commit.apply(change{key: k})
	}
	if err != nil {
		return fmt.Errorf("delete record %q: %w", formatKey(k), err)
	}
	return nil
}

// List returns the readable records in the order of their keys, and an error that names each
// unreadable record, or reports how many are missing.
func (j *Journal) List() ([]*attach.Record, error) {
	var recs []*attach.Record
	var corrupt []error
	err := j.view(func(records *bbolt.Bucket) error {
		found := &digest{}
		err := records.ForEach(func(k, value []byte) error {
			found.add(k, value)
			rec, err := decodeRecord(k, value)
			if err == nil && !bytes.Equal(records.Get(k), value) {
				err = fmt.Errorf("%w: record %q: it is not found by its key", ErrCorrupt, formatKey(k))
			}
			if err != nil {
				corrupt = append(corrupt, err)
				return nil
			}
			recs = append(recs, rec)
			return nil
		})
		return errors.Join(err, checkRollback(records.Tx()), checkDigest(records.Tx(), found))
	})
	if err = errors.Join(append(corrupt, err)...); err != nil {
		return recs, fmt.Errorf("list records: %w", err)
	}
	return recs, nil
}

// view reads the bucket of records.
func (j *Journal) view(read func(records *bbolt.Bucket) error) error {
	return catchPanic(func() error {
		return j.db.View(func(tx *bbolt.Tx) error { return read(tx.Bucket([]byte(bucketRecords))) })
	})
}

var _ attach.Journal = (*Journal)(nil)
