// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// keyRollback is set in the bucket meta after a commit was found missing.
const keyRollback = "rollback"

// Offsets in bbolt's meta pages, in the machine's byte order.
const (
	metaStart    = pageHeaderSize
	metaRoot     = metaStart + 16
	metaFreelist = metaStart + 32
	metaEndID    = metaStart + 40
	metaTxID     = metaStart + 48
	metaChecksum = metaStart + 56
)

// prepareFile verifies the file, prepares its schema, and marks a lost commit.
func prepareFile(db *bbolt.DB) error {
	rolledBack, err := verifyFile(db)
	if err != nil {
		return err
	}
	if err := prepareSchema(db); err != nil || !rolledBack {
		return err
	}
	return markRollback(db)
}

// verifyFile reads the file without bbolt and checks its pages. It reports whether bbolt fell back to
// the state before the last commit. bbolt has two meta pages and writes them in turn. When the newer
// one is corrupt it opens the older one, which lacks the records of the last commit. A corrupt older
// one is harmless, because the next commit overwrites it.
func verifyFile(db *bbolt.DB) (rolledBack bool, err error) {
	var txID uint64
	if err := db.View(func(tx *bbolt.Tx) error { txID = uint64(tx.ID()); return nil }); err != nil {
		return false, err
	}
	file, err := os.ReadFile(db.Path())
	if err != nil {
		return false, err
	}
	size := uint64(db.Info().PageSize)
	if uint64(len(file)) < 2*size {
		return false, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(file))
	}
	p := &pageChecker{file: file, size: size}
	if err := p.verify(file[txID%2*size:]); err != nil {
		return false, asCorrupt(err)
	}
	other := file[(1-txID%2)*size:]
	checksum := binary.NativeEndian.Uint64(other[metaChecksum:])
	if checksum == metaPageChecksum(other) || binary.NativeEndian.Uint64(other[metaTxID:]) == txID-1 {
		return false, nil
	}
	binary.NativeEndian.PutUint64(other[metaTxID:], txID-1)
	return checksum != metaPageChecksum(other), nil
}

// metaPageChecksum returns the checksum that bbolt writes into a meta page.
func metaPageChecksum(page []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(page[metaStart:metaChecksum])
	return h.Sum64()
}

// markRollback makes List report the missing commit from now on. The next commit overwrites the
// corrupt meta page, so that it cannot be detected afterwards.
func markRollback(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyRollback), []byte{1}) })
}

// checkRollback returns an error after markRollback was called.
func checkRollback(tx *bbolt.Tx) error {
	if tx.Bucket([]byte(bucketMeta)).Get([]byte(keyRollback)) == nil {
		return nil
	}
	return fmt.Errorf("%w: the meta page of the last commit was corrupt, so that a record may be missing", ErrCorrupt)
}

// catchPanic calls f and turns a panic into ErrCorrupt. bbolt panics on corrupt pages, and a truncated
// file causes a memory fault. Either would end the daemon at each start without a message.
func catchPanic(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch p := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("%w: %w", ErrCorrupt, p)
		default:
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return f()
}

// asCorrupt adds ErrCorrupt to the errors of bbolt about the file's content, and not to I/O errors.
func asCorrupt(err error) error {
	for _, target := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, target) {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return err
}
