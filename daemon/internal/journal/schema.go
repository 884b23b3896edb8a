// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// schema is the version of what this package writes. It is raised by a change
// that an older daemon would misread. The bucket of seqs did not raise it: it is
// made by the first seq, a journal without one is as good, and a daemon that does
// not know it leaves it alone.
const schema = "2"

// schemaNoDigest is what daemons wrote that kept no digest of all records. Such a
// journal gets one when it is opened; these daemons would let it go stale.
const schemaNoDigest = "1"

// ErrSchema says that another version of the daemon wrote the journal.
var ErrSchema = errors.New("journal has another schema")

// bucket names and the schema's key.
var (
	bucketMeta    = []byte("meta")
	bucketRecords = []byte("records")
	bucketSeqs    = []byte("seqs")
	keySchema     = []byte("schema")
)

// firstTxID is the transaction ID of a file that has seen no commit. One without
// buckets is damaged when it has seen some.
const firstTxID = 1

// prepareSchema makes the buckets of a new journal and checks the schema of an old
// one before anything is changed in it.
func prepareSchema(db *bbolt.DB) error {
	fresh, old := false, false
	err := db.View(func(tx *bbolt.Tx) error {
		if fresh = tx.ID() == firstTxID; fresh {
			return nil
		}
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			return fmt.Errorf("%w: no bucket %q", ErrCorrupt, bucketMeta)
		}
		got := string(meta.Get(keySchema))
		if old = got == schemaNoDigest; !old && got != schema {
			return fmt.Errorf("%w: it has %q, this daemon writes %q", ErrSchema, got, schema)
		}
		if tx.Bucket(bucketRecords) == nil {
			return fmt.Errorf("%w: no bucket %q", ErrCorrupt, bucketRecords)
		}
		return nil
	})
	if err != nil || !fresh && !old {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketRecords)
		if err != nil {
			return fmt.Errorf("create bucket: %w", err)
		}
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return fmt.Errorf("create bucket: %w", err)
		}
		all, err := digestRecords(tx)
		if err != nil {
			return err
		}
		return errors.Join(all.store(tx), meta.Put(keySchema, []byte(schema)))
	})
}
