// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// change is one write: a nil value deletes. With edit set, the value is what
// edit makes of the stored one (nil when there is none), and nil leaves that as
// it is. Edit must not keep the stored one, and must not fail: the commit is
// shared. With a node set it is about the seqs of that Node UID instead of the
// records.
type change struct {
	nodeUID, key, value []byte
	edit                func(stored []byte) []byte
}

// batch is the changes of one commit. err is set before done is closed.
type batch struct {
	changes []change
	done    chan struct{}
	err     error
}

// committer groups changes without a timer: whoever finds no commit running
// commits at once, and all who come meanwhile share the next one. bbolt's own
// Batch makes a lone writer wait for company.
type committer struct {
	db *bbolt.DB
	// token has one token; who takes it commits.
	token chan struct{}
	mu    sync.Mutex
	// open is the batch that the next commit will take; guarded by mu.
	open *batch
}

func newCommitter(db *bbolt.DB) *committer {
	c := &committer{db: db, token: make(chan struct{}, 1)}
	c.token <- struct{}{}
	return c
}

// apply returns when the change is on disk. The order of changes by one caller
// is kept; an error is every caller's of that batch.
func (c *committer) apply(ch change) error {
	b := c.enqueue(ch)
	select {
	case <-b.done:
		return b.err
	case <-c.token:
	}
	defer func() { c.token <- struct{}{} }()
	// Both may have been ready: the batch was taken by whoever had the turn.
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

// seal closes the batch for others; false when somebody has done so before.
func (c *committer) seal(b *batch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != b {
		return false
	}
	c.open = nil
	return true
}

// write is one transaction with all changes, in their order.
func (c *committer) write(changes []change) error {
	return c.db.Update(func(tx *bbolt.Tx) error {
		all, err := readDigest(tx)
		if err != nil {
			return err
		}
		before := *all
		for _, ch := range changes {
			if err := ch.write(tx, all); err != nil {
				return err
			}
		}
		if *all == before {
			return nil
		}
		return all.store(tx)
	})
}

func (ch change) write(tx *bbolt.Tx, all *digest) error {
	if ch.nodeUID != nil {
		bucket, err := keepOnlyNodeBucket(tx, ch.nodeUID)
		if err != nil {
			return err
		}
		return putOrDelete(bucket, ch.key, ch.value)
	}
	bucket := tx.Bucket(bucketRecords)
	stored, value := bucket.Get(ch.key), ch.value
	if ch.edit != nil {
		if value = ch.edit(stored); value == nil {
			return nil
		}
	}
	if stored != nil {
		all.remove(ch.key, stored)
	}
	if value != nil {
		all.add(ch.key, value)
	}
	return putOrDelete(bucket, ch.key, value)
}

// keepOnlyNodeBucket returns the bucket of a Node UID and removes those of others.
func keepOnlyNodeBucket(tx *bbolt.Tx, nodeUID []byte) (*bbolt.Bucket, error) {
	all, err := tx.CreateBucketIfNotExists(bucketSeqs)
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
		return nil, fmt.Errorf("forget the seqs of another Node: %w", err)
	}
	return all.CreateBucketIfNotExists(nodeUID)
}

// putOrDelete writes a value, or deletes the key when there is none.
func putOrDelete(bucket *bbolt.Bucket, key, value []byte) error {
	if value == nil {
		return bucket.Delete(key)
	}
	return bucket.Put(key, value)
}
