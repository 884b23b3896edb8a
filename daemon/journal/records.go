// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Get returns the record, attach.ErrNotFound, or ErrCorrupt with its key.
func (j *Journal) Get(containerID, ifName string) (*attach.Record, error) {
	k, err := key(containerID, ifName)
	if err != nil {
		return nil, err
	}
	var rec *attach.Record
	err = j.view(func(records *bbolt.Bucket) error {
		value := records.Get(k)
		if value == nil {
			return attach.ErrNotFound
		}
		rec, err = decode(k, value)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get record %q: %w", showKey(k), err)
	}
	return rec, nil
}

// Put writes the record; it is on disk when Put returns.
func (j *Journal) Put(rec *attach.Record) error {
	k, err := key(rec.ContainerID, rec.IfName)
	if err != nil {
		return err
	}
	value, err := encode(rec)
	if err != nil {
		return err
	}
	if err := j.commit.apply(change{key: k, value: value}); err != nil {
		return fmt.Errorf("put record %q: %w", showKey(k), err)
	}
	return nil
}

// Delete removes the record, on disk when Delete returns. A record that is not
// there costs no write.
func (j *Journal) Delete(containerID, ifName string) error {
	k, err := key(containerID, ifName)
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
		return fmt.Errorf("delete record %q: %w", showKey(k), err)
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
			rec, err := decode(k, value)
			if err == nil && !bytes.Equal(records.Get(k), value) {
				err = fmt.Errorf("%w: record %q: it cannot be found by its key", ErrCorrupt, showKey(k))
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
	return guard(func() error {
		return j.db.View(func(tx *bbolt.Tx) error { return read(tx.Bucket(bucketRecords)) })
	})
}
