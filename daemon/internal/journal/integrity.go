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

// keyRollback is set in the bucket meta from when a commit was found missing.
var keyRollback = []byte("rollback")

// Where bbolt's meta pages have what is read here: behind the page's header, in
// the machine's byte order.
const (
	metaStart    = pageHeaderSize
	metaRoot     = metaStart + 16
	metaFreelist = metaStart + 32
	metaEndID    = metaStart + 40
	metaTxID     = metaStart + 48
	metaChecksum = metaStart + 56
)

// verifyFile reads the file behind bbolt's back and checks its pages. It reports whether
// bbolt fell back to the state before the last commit: it has two meta pages and writes
// them in turn, and when the newer one is damaged it opens the older one, which is whole
// and says nothing of a record written since. A damaged older one is harmless: the next
// commit replaces it.
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

// metaPageChecksum is the checksum that bbolt gives a meta page.
func metaPageChecksum(page []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(page[metaStart:metaChecksum])
	return h.Sum64()
}

// markRollback makes List report the missing commit from now on: the next one
// replaces the damaged page, and with it all signs.
func markRollback(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyRollback, []byte{1}) })
}

// checkRollback returns an error where markRollback has been called.
func checkRollback(tx *bbolt.Tx) error {
	if tx.Bucket(bucketMeta).Get(keyRollback) == nil {
		return nil
	}
	return fmt.Errorf("%w: the page that led to the last commit was damaged, and a record of it may be missing", ErrCorrupt)
}

// catchPanic runs f and turns a panic into ErrCorrupt. bbolt trusts the pages that
// it maps: damaged ones make it panic, and a file that was cut short faults.
// Either would end the daemon again at every start, without a word on why.
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

// asCorrupt tells bbolt's opinions on the file's content from errors of reading it.
func asCorrupt(err error) error {
	for _, sign := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, sign) {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return err
}
