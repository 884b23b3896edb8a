// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// change is one write to the records, or to the sequence numbers of a Node UID.
type change struct {
	// nodeUID selects the sequence numbers of that Node; nil selects the records.
	nodeUID []byte
	// key and value are what is written. A nil value deletes the key.
	key, value []byte
	// edit, if set, returns the new value for the stored one, which is nil when there is none. It
	// returns nil to change nothing. It must not keep the stored value.
	edit func(stored []byte) []byte
}

// batch has the changes of one commit. err is set before done is closed.
type batch struct {
	changes []change
	done    chan struct{}
	err     error
}

// committer groups concurrent changes into commits (group commit). A writer that finds no commit in
// progress commits at once. The changes that come during a commit share the next one. bbolt's own
// Batch delays a single writer by a timer instead.
type committer struct {
	db *bbolt.DB
	// token has one element. The writer that takes it commits.
	token chan struct{}
	mu    sync.Mutex
	// open is the batch of the next commit. mu guards it.
	open *batch
}

// newCommitter returns a committer for a database.
func newCommitter(db *bbolt.DB) *committer {
	c := &committer{db: db, token: make(chan struct{}, 1)}
	c.token <- struct{}{}
	return c
}

// apply returns when the change is on disk. It keeps the order of one caller's changes. All callers
// of a batch get its error.
func (c *committer) apply(ch change) error {
	b := c.enqueue(ch)
	select {
	case <-b.done:
		return b.err
	case <-c.token:
	}
	defer func() { c.token <- struct{}{} }()
	// Both channels may have been ready. The previous holder of the token has then written the batch.
	if c.seal(b) {
		b.err = catchPanic(func() error { return c.write(b.changes) })
		close(b.done)
	}
	<-b.done
	return b.err
}

// enqueue adds the change to the open batch.
func (c *committer) enqueue(ch change) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = &batch{done: make(chan struct{})}
	}
	b := c.open
	b.changes = append(b.changes, ch)
	return b
}

// seal closes the batch for further changes. It returns false if it was closed before.
func (c *committer) seal(b *batch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != b {
		return false
	}
	c.open = nil
	return true
}

// write writes all changes in one transaction, in their order.
func (c *committer) write(changes []change) error {
	return c.db.Update(func(tx *bbolt.Tx) error {
		digest, err := readDigest(tx)
		if err != nil {
			return err
		}
		before := *digest
		for _, ch := range changes {
			if err := ch.write(tx, digest); err != nil {
				return err
			}
		}
		if *digest == before {
			return nil
		}
		return digest.store(tx)
	})
}

// write writes the change and updates the digest of all records.
func (ch change) write(tx *bbolt.Tx, d *digest) error {
	if ch.nodeUID != nil {
		bucket, err := keepOnlyNodeBucket(tx, ch.nodeUID)
		if err != nil {
			return err
		}
		return putOrDelete(bucket, ch.key, ch.value)
	}
	bucket := tx.Bucket([]byte(bucketRecords))
	stored, value := bucket.Get(ch.key), ch.value
	if ch.edit != nil {
		if value = ch.edit(stored); value == nil {
			return nil
		}
	}
	if stored != nil {
		d.remove(ch.key, stored)
	}
	if value != nil {
		d.add(ch.key, value)
	}
	return putOrDelete(bucket, ch.key, value)
}

// keepOnlyNodeBucket returns the bucket of a Node UID and deletes those of other UIDs.
func keepOnlyNodeBucket(tx *bbolt.Tx, nodeUID []byte) (*bbolt.Bucket, error) {
	all, err := tx.CreateBucketIfNotExists([]byte(bucketSeqs))
	if err != nil {
		return nil, fmt.Errorf("create bucket: %w", err)
	}
	var others [][]byte
	err = all.ForEachBucket(func(uid []byte) error {
		if !bytes.Equal(uid, nodeUID) {
			others = append(others, bytes.Clone(uid))
		}
		return nil
	})
	for _, uid := range others {
		err = errors.Join(err, all.DeleteBucket(uid))
	}
	if err != nil {
		return nil, fmt.Errorf("delete the seqs of another Node: %w", err)
	}
	return all.CreateBucketIfNotExists(nodeUID)
}

// putOrDelete writes the value, or deletes the key if the value is nil.
func putOrDelete(bucket *bbolt.Bucket, key, value []byte) error {
	if value == nil {
		return bucket.Delete(key)
	}
	return bucket.Put(key, value)
}
