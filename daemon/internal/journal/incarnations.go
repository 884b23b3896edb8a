// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// bootIDFile has another content after each boot of the kernel (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the kernel's boot ID. The network namespaces of records with another boot ID are
// gone.
func BootID() (string, error) { return readBootID(bootIDFile) }

// readBootID reads the boot ID from a file.
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

// keyIncarnation has the number of daemon starts: 8 bytes, big endian, after their checksum since
// schema 2.
const keyIncarnation = "life"

// NextIncarnation increments the number of daemon starts and returns it, from 1. The number
// distinguishes what this daemon writes to the API server from the writes of earlier ones.
func (j *Journal) NextIncarnation() (int64, error) {
	var incarnation uint64
	err := catchPanic(func() error {
		return j.db.Update(func(tx *bbolt.Tx) (err error) {
			meta := tx.Bucket([]byte(bucketMeta))
			if incarnation, err = decodeIncarnation(meta.Get([]byte(keyIncarnation))); err != nil {
				return err
			}
			incarnation++
			n := binary.BigEndian.AppendUint64(nil, incarnation)
			return meta.Put([]byte(keyIncarnation), append(binary.BigEndian.AppendUint32(nil, crc32c(n)), n...))
		})
	})
	if err != nil {
		return 0, fmt.Errorf("increment the number of daemon starts: %w", err)
	}
	return int64(incarnation), nil
}

// decodeIncarnation returns the stored number, which is 0 in a new journal.
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
	return 0, fmt.Errorf("%w: the number of daemon starts is unreadable", ErrCorrupt)
}

// PutSeq stores the sequence number of the node's entry in a network's status. It is on disk when
// PutSeq returns; 0 deletes it. A smaller number in a later read means that the API server was
// restored to an older state. PutSeq deletes the numbers of other Node UIDs, because a Node that
// was deleted and created again starts from 1.
func (j *Journal) PutSeq(nodeUID string, key network.Key, seq int64) error {
	k, err := seqKey(nodeUID, key)
	if err != nil {
		return err
	}
	var value []byte
	if seq != 0 {
		value = encodeSeq(k, seq)
	}
	same := value == nil // without a number of this UID, there is nothing to delete
	err = j.viewSeqs(nodeUID, func(seqs *bbolt.Bucket) error {
		same = bytes.Equal(seqs.Get(k), value)
		return nil
	})
	if err == nil && !same {
		err = j.commit.apply(change{nodeUID: []byte(nodeUID), key: k, value: value})
	}
	if err != nil {
		return fmt.Errorf("put seq %d of %s: %w", seq, formatKey(k), err)
	}
	return nil
}

// seqKey returns the key of a network in the bucket of a Node UID: kind, namespace, name and UID.
func seqKey(nodeUID string, key network.Key) ([]byte, error) {
	k := strings.Join([]string{key.Ref.Kind, key.Ref.Namespace, key.Ref.Name, key.UID}, separator)
	if nodeUID == "" || key.UID == "" || strings.Count(k, separator) != 3 || len(nodeUID)+len(k) > maxKeySize {
		return nil, fmt.Errorf("journal key: Node UID %q, network %v with UID %q: both UIDs must be set, without NUL, and at most %d bytes",
			nodeUID, key.Ref, key.UID, maxKeySize)
	}
	return []byte(k), nil
}

// encodeSeq returns the sequence number after the checksum of key and number (CRC-32C, big endian).
func encodeSeq(k []byte, seq int64) []byte {
	n := binary.BigEndian.AppendUint64(nil, uint64(seq))
	return append(binary.BigEndian.AppendUint32(nil, crc32c(slices.Concat(k, n))), n...)
}

// Seqs returns the readable sequence numbers of this Node UID, and an error that names each
// network whose number is unreadable.
func (j *Journal) Seqs(nodeUID string) (map[network.Key]int64, error) {
	found := map[network.Key]int64{}
	var corrupt []error
	err := j.viewSeqs(nodeUID, func(seqs *bbolt.Bucket) error {
		return seqs.ForEach(func(k, value []byte) error {
			key, seq, err := decodeSeq(k, value)
			if err != nil {
				corrupt = append(corrupt, err)
				return nil
			}
			found[key] = seq
			return nil
		})
	})
	if err = errors.Join(append(corrupt, err)...); err != nil {
		return found, fmt.Errorf("list seqs: %w", err)
	}
	return found, nil
}

// seqSize is the length of a sequence number on disk, in bytes, big endian.
const seqSize = 8

// decodeSeq decodes a key and the value that encodeSeq returned for it.
func decodeSeq(k, value []byte) (network.Key, int64, error) {
	parts := strings.Split(string(k), separator)
	if len(parts) != 4 || len(value) != checksumSize+seqSize {
		return network.Key{}, 0, fmt.Errorf("%w: seq %q: %d bytes", ErrCorrupt, formatKey(k), len(value))
	}
	n := value[checksumSize:]
	if binary.BigEndian.Uint32(value) != crc32c(slices.Concat(k, n)) {
		return network.Key{}, 0, fmt.Errorf("%w: seq %q: the checksum does not match", ErrCorrupt, formatKey(k))
	}
	key := network.Key{Ref: network.Ref{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, UID: parts[3]}
	return key, int64(binary.BigEndian.Uint64(n)), nil
}

// viewSeqs reads the sequence numbers of a Node UID. It does not call read when there are none.
func (j *Journal) viewSeqs(nodeUID string, read func(seqs *bbolt.Bucket) error) error {
	return catchPanic(func() error {
		return j.db.View(func(tx *bbolt.Tx) error {
			all := tx.Bucket([]byte(bucketSeqs))
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
