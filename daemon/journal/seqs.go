// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// RememberSeq notes the seq of the node's entry in a network's status; it is on
// disk when RememberSeq returns, and 0 forgets it. Who later reads a smaller one
// from the API server has met an older state of it. The Node's UID goes along: a
// Node that was deleted and made again starts over, so that the seqs of another
// UID are forgotten by this.
func (j *Journal) RememberSeq(nodeUID string, key claims.Key, seq int64) error {
	k, err := seqKey(nodeUID, key)
	if err != nil {
		return err
	}
	var value []byte
	if seq != 0 {
		value = encodeSeq(k, seq)
	}
	same := value == nil // where none of this UID is noted, nothing is to be forgotten
	err = j.viewSeqs(nodeUID, func(seqs *bbolt.Bucket) error {
		same = bytes.Equal(seqs.Get(k), value)
		return nil
	})
	if err == nil && !same {
		err = j.commit.apply(change{node: []byte(nodeUID), key: k, value: value})
	}
	if err != nil {
		return fmt.Errorf("remember seq %d of %s: %w", seq, showKey(k), err)
	}
	return nil
}

// Seqs returns what RememberSeq noted under this UID of the Node, as far as it
// can be read, and an error that names every network whose seq cannot.
func (j *Journal) Seqs(nodeUID string) (map[claims.Key]int64, error) {
	found := map[claims.Key]int64{}
	var bad []error
	err := j.viewSeqs(nodeUID, func(seqs *bbolt.Bucket) error {
		return seqs.ForEach(func(k, value []byte) error {
			key, seq, err := decodeSeq(k, value)
			if err != nil {
				bad = append(bad, err)
				return nil
			}
			found[key] = seq
			return nil
		})
	})
	if err = errors.Join(append(bad, err)...); err != nil {
		return found, fmt.Errorf("list seqs: %w", err)
	}
	return found, nil
}

// viewSeqs reads the seqs of a Node UID; it does not call read when there are none.
func (j *Journal) viewSeqs(nodeUID string, read func(seqs *bbolt.Bucket) error) error {
	return guard(func() error {
		return j.db.View(func(tx *bbolt.Tx) error {
			all := tx.Bucket(bucketSeqs)
			if all == nil {
				return nil
			}
			if seqs := all.Bucket([]byte(nodeUID)); seqs != nil {
				return read(seqs)
			}
			return nil
		})
	})
}

// onlyNode returns the bucket of a Node UID and removes those of others.
func onlyNode(tx *bbolt.Tx, nodeUID []byte) (*bbolt.Bucket, error) {
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
