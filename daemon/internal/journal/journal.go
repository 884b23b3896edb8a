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

// Options are the choices of Open; the zero value is for tests.
type Options struct {
	// Holder tells a person who has the lock, for example the Pod's name.
	Holder string
	// Wait bounds the wait for the lock; 0 tries once.
	Wait time.Duration
}

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
	err := catchPanic(func() error { return j.open(ctx, path, o) })
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, nil
}

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

// lockRetryInterval is the time between two tries to get the lock.
const lockRetryInterval = 50 * time.Millisecond

// openLocked opens the file, as soon as nobody else has it open.
func openLocked(ctx context.Context, path string, wait time.Duration) (*bbolt.DB, error) {
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
		case <-time.After(lockRetryInterval):
		}
	}
}

// prepareFile prepares the file, and keeps in mind what its last commit lost.
func prepareFile(db *bbolt.DB) error {
	lost, err := verifyFile(db)
	if err != nil {
		return err
	}
	if err := prepareSchema(db); err != nil || !lost {
		return err
	}
	return markRollback(db)
}

// writeHolder leaves a line on who has the lock. The kernel knows a pid, which
// says nothing in another container's pid namespace.
func writeHolder(path, name string) error {
	line := fmt.Sprintf("%s (pid %d) since %s\n",
		cmp.Or(name, "another daemon"), os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	return os.WriteFile(path, []byte(line), 0o600)
}

// readHolder is the line of the holder, or that there is none.
func readHolder(path string) string {
	line, err := os.ReadFile(path)
	if err != nil {
		return "a process that does not say who it is"
	}
	return strings.TrimSpace(string(line))
}

// syncDir puts a new file's name on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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

// Get returns the record, attach.ErrNotFound, or ErrCorrupt with its key.
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

// Put writes the record; it is on disk when Put returns.
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

// Update changes a record in the transaction that reads it, so that two writers
// who each know a part of it lose nothing of each other's. It returns what edit
// returns and leaves the record as it was then; attach.ErrNotFound when there is
// none. Edit must not change the record's key.
func (j *Journal) Update(containerID, ifName string, edit func(*attach.Record) error) error {
	k, err := recordKey(containerID, ifName)
	if err != nil {
		return err
	}
	var own error
	err = j.commit.apply(change{key: k, edit: func(stored []byte) []byte {
		var value []byte
		value, own = applyEdit(k, stored, edit)
		return value
	}})
	if err == nil {
		err = own
	}
	if err != nil {
		return fmt.Errorf("update record %q: %w", formatKey(k), err)
	}
	return nil
}

// applyEdit is the stored value of a record after edit.
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

// Delete removes the record, on disk when Delete returns. A record that is not
// there costs no write.
func (j *Journal) Delete(containerID, ifName string) error {
	k, err := recordKey(containerID, ifName)
	if err != nil {
		return err
	}
	there := false
	err = j.view(func(records *bbolt.Bucket) error {
		there = records.Get(k) != nil
		return nil
	})
	if err == nil && there {
		err = j.commit.apply(change{key: k})
	}
	if err != nil {
		return fmt.Errorf("delete record %q: %w", formatKey(k), err)
	}
	return nil
}

// List returns the records that can be read, in the order of their keys, and
// an error that names every one that cannot, or how many are missing.
func (j *Journal) List() ([]*attach.Record, error) {
	var recs []*attach.Record
	var bad []error
	err := j.view(func(records *bbolt.Bucket) error {
		found := &digest{}
		err := records.ForEach(func(k, value []byte) error {
			found.add(k, value)
			rec, err := decodeRecord(k, value)
			if err == nil && !bytes.Equal(records.Get(k), value) {
				err = fmt.Errorf("%w: record %q: it cannot be found by its key", ErrCorrupt, formatKey(k))
			}
			if err != nil {
				bad = append(bad, err)
				return nil
			}
			recs = append(recs, rec)
			return nil
		})
		return errors.Join(err, checkRollback(records.Tx()), checkDigest(records.Tx(), found))
	})
	if err = errors.Join(append(bad, err)...); err != nil {
		return recs, fmt.Errorf("list records: %w", err)
	}
	return recs, nil
}

func (j *Journal) view(read func(records *bbolt.Bucket) error) error {
	return catchPanic(func() error {
		return j.db.View(func(tx *bbolt.Tx) error { return read(tx.Bucket(bucketRecords)) })
	})
}

var _ attach.Journal = (*Journal)(nil)
