// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// keyLife counts the daemon's starts, 8 bytes big endian.
var keyLife = []byte("life")

// NextLife counts this start of the daemon and returns its number, from 1. What
// a daemon writes elsewhere under that number is told from its former lives'.
func (j *Journal) NextLife() (int64, error) {
	var life uint64
	err := guard(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket(bucketMeta)
			if stored := meta.Get(keyLife); len(stored) == 8 {
				life = binary.BigEndian.Uint64(stored)
			}
			life++
			return meta.Put(keyLife, binary.BigEndian.AppendUint64(nil, life))
		})
	})
	if err != nil {
		return 0, fmt.Errorf("count the daemon's start: %w", err)
	}
	return int64(life), nil
}
