// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// keyDigest is the key of the digest in the bucket meta.
const keyDigest = "digest"

// digestSize is the length of a digest on disk, in bytes.
const digestSize = 8 + 8 + checksumSize

// digest is a checksum of all records. It reports a record that a corrupt page has lost, which the
// record's own checksum cannot. Each commit updates it by the difference of its changes and never
// computes it from the records, so that a lost record stays missing.
type digest struct {
	// records is the number of records.
	records uint64
	// sum is the sum of the checksums of all entries.
	sum uint64
}

// add adds an entry.
func (d *digest) add(k, value []byte) {
	d.records++
	d.sum += entryChecksum(k, value)
}

// remove removes an entry.
func (d *digest) remove(k, value []byte) {
	d.records--
	d.sum -= entryChecksum(k, value)
}

// entryChecksum returns the checksum of a key with its value.
func entryChecksum(k, value []byte) uint64 {
	return uint64(crc32.Update(crc32c(k), castagnoli(), value))
}

// checkDigest compares the digest of the records that were found with the stored one.
func checkDigest(tx *bbolt.Tx, found *digest) error {
	d, err := readDigest(tx)
	switch {
	case err != nil:
		return err
	case found.records != d.records:
		return fmt.Errorf("%w: found %d records, must be %d", ErrCorrupt, found.records, d.records)
	case found.sum != d.sum:
		return fmt.Errorf("%w: the records differ from those that were written", ErrCorrupt)
	}
	return nil
}

// store writes the digest with its own checksum (CRC-32C, big endian).
func (d *digest) store(tx *bbolt.Tx) error {
	value := binary.BigEndian.AppendUint64(nil, d.records)
	value = binary.BigEndian.AppendUint64(value, d.sum)
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyDigest), binary.BigEndian.AppendUint32(value, crc32c(value)))
}

// readDigest reads the stored digest.
func readDigest(tx *bbolt.Tx) (*digest, error) {
	value := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyDigest))
	if len(value) != digestSize || binary.BigEndian.Uint32(value[16:]) != crc32c(value[:16]) {
		return nil, fmt.Errorf("%w: the digest of all records is unreadable", ErrCorrupt)
	}
	return &digest{records: binary.BigEndian.Uint64(value), sum: binary.BigEndian.Uint64(value[8:])}, nil
}
