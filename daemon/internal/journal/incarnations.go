// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// bootIDFile changes with every boot of the kernel (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the kernel's boot ID. Records of another one have outlived
// their network namespaces.
func BootID() (string, error) { return readBootID(bootIDFile) }

func readBootID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", fmt.Errorf("read boot ID: %s is empty", path)
	}
	return id, nil
}

// keyIncarnation counts the daemon's starts: 8 bytes big endian, behind their checksum
// since schema 2.
var keyIncarnation = []byte("life")

// NextIncarnation counts this start of the daemon and returns its number, from 1. What
// a daemon writes elsewhere under that number is told from its former lives'.
func (j *Journal) NextIncarnation() (int64, error) {
	var life uint64
	err := catchPanic(func() error {
		return j.db.Update(func(tx *bbolt.Tx) (err error) {
			meta := tx.Bucket(bucketMeta)
			if life, err = decodeIncarnation(meta.Get(keyIncarnation)); err != nil {
				return err
			}
			life++
			n := binary.BigEndian.AppendUint64(nil, life)
			return meta.Put(keyIncarnation, append(binary.BigEndian.AppendUint32(nil, crc32c(n)), n...))
		})
	})
	if err != nil {
		return 0, fmt.Errorf("count the daemon's start: %w", err)
	}
	return int64(life), nil
}

// decodeIncarnation is 0 in a new journal.
func decodeIncarnation(stored []byte) (uint64, error) {
	switch len(stored) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(stored), nil
	case checksumSize + 8:
		if n := stored[checksumSize:]; binary.BigEndian.Uint32(stored) == crc32c(n) {
			return binary.BigEndian.Uint64(n), nil
		}
	}
	return 0, fmt.Errorf("%w: the number of the daemon's starts cannot be read", ErrCorrupt)
}

// PutSeq notes the seq of the node's entry in a network's status; it is on
// disk when RememberSeq returns, and 0 forgets it. Who later reads a smaller one
// from the API server has met an older state of it. The Node's UID goes along: a
// Node that was deleted and made again starts over, so that the seqs of another
// UID are forgotten by this.
func (j *Journal) PutSeq(nodeUID string, key claims.Key, seq int64) error {
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
		err = j.commit.apply(change{nodeUID: []byte(nodeUID), key: k, value: value})
	}
	if err != nil {
		return fmt.Errorf("remember seq %d of %s: %w", seq, formatKey(k), err)
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
	return catchPanic(func() error {
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
