// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// keyLife counts the daemon's starts: 8 bytes big endian, behind their checksum
// since schema 2.
var keyLife = []byte("life")

// NextLife counts this start of the daemon and returns its number, from 1. What
// a daemon writes elsewhere under that number is told from its former lives'.
func (j *Journal) NextLife() (int64, error) {
	var life uint64
	err := guard(func() error {
		return j.db.Update(func(tx *bbolt.Tx) (err error) {
			meta := tx.Bucket(bucketMeta)
			if life, err = decodeLife(meta.Get(keyLife)); err != nil {
				return err
			}
			life++
			n := binary.BigEndian.AppendUint64(nil, life)
			return meta.Put(keyLife, append(binary.BigEndian.AppendUint32(nil, sum(n)), n...))
		})
	})
	if err != nil {
		return 0, fmt.Errorf("count the daemon's start: %w", err)
	}
	return int64(life), nil
}

// decodeLife is 0 in a new journal.
func decodeLife(stored []byte) (uint64, error) {
	switch len(stored) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(stored), nil
	case sumSize + 8:
		if n := stored[sumSize:]; binary.BigEndian.Uint32(stored) == sum(n) {
			return binary.BigEndian.Uint64(n), nil
		}
	}
	return 0, fmt.Errorf("%w: the number of the daemon's starts cannot be read", ErrCorrupt)
}
