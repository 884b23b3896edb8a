// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// schema is the version of the file's content. A change that an older daemon would misread must
// increment it. The bucket of sequence numbers did not: the first number creates it, a journal
// without it is valid, and an older daemon ignores it.
const schema = "2"

// schemaNoDigest is the version without a digest of all records. Open adds the digest, and
// increments the version because older daemons would not update it.
const schemaNoDigest = "1"

// ErrSchema means that another version of the daemon wrote the journal.
var ErrSchema = errors.New("journal has another schema")

// Names of buckets, and the schema's key in the bucket meta.
const (
	bucketMeta    = "meta"
	bucketRecords = "records"
	bucketSeqs    = "seqs"
	keySchema     = "schema"
)

// firstTxID is the transaction ID of a file without a commit. A file with commits and without
// buckets is corrupt.
const firstTxID = 1

// prepareSchema checks the schema of an existing journal, and then creates the buckets of a new one
// or updates an older one.
func prepareSchema(db *bbolt.DB) error {
	fresh, old := false, false
	err := db.View(func(tx *bbolt.Tx) error {
		if fresh = tx.ID() == firstTxID; fresh {
			return nil
		}
		meta := tx.Bucket([]byte(bucketMeta))
		if meta == nil {
			return fmt.Errorf("%w: no bucket %q", ErrCorrupt, bucketMeta)
		}
		got := string(meta.Get([]byte(keySchema)))
		if old = got == schemaNoDigest; !old && got != schema {
			return fmt.Errorf("%w: it is %q, must be %q", ErrSchema, got, schema)
		}
		if tx.Bucket([]byte(bucketRecords)) == nil {
			return fmt.Errorf("%w: no bucket %q", ErrCorrupt, bucketRecords)
		}
		return nil
	})
	if err != nil || !fresh && !old {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(bucketRecords))
		if err != nil {
			return fmt.Errorf("create bucket: %w", err)
		}
		meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
		if err != nil {
			return fmt.Errorf("create bucket: %w", err)
		}
		all, err := digestRecords(tx)
		if err != nil {
			return err
		}
		return errors.Join(all.store(tx), meta.Put([]byte(keySchema), []byte(schema)))
	})
}

// digestRecords computes the digest of the records in a file without a digest.
func digestRecords(tx *bbolt.Tx) (*digest, error) {
	d := &digest{}
	err := tx.Bucket([]byte(bucketRecords)).ForEach(func(k, value []byte) error {
		d.add(k, value)
		return nil
	})
	return d, err
}
