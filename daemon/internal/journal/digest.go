// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// keyDigest is the digest's key in the bucket meta.
var keyDigest = []byte("digest")

// digestSize is the length of a digest on disk, in bytes.
const digestSize = 8 + 8 + checksumSize

// digest is what all records are together. A record's own checksum cannot report
// that the record is missing: a damaged page may have lost it, or its key. It is
// kept by difference in the commit of each change, never computed anew, so that
// what was lost once stays missing.
type digest struct {
	// records counts them.
	records uint64
	// sum adds up the checksums of all keys with their values.
	sum uint64
}

func (d *digest) add(k, value []byte) {
	d.records++
	d.sum += entryChecksum(k, value)
}

func (d *digest) remove(k, value []byte) {
	d.records--
	d.sum -= entryChecksum(k, value)
}

func entryChecksum(k, value []byte) uint64 {
	return uint64(crc32.Update(crc32c(k), castagnoli, value))
}

// checkDigest compares what was found with what was written.
func checkDigest(tx *bbolt.Tx, found *digest) error {
	d, err := readDigest(tx)
	switch {
	case err != nil:
		return err
	case found.records != d.records:
		return fmt.Errorf("%w: %d records can be found, %d were written", ErrCorrupt, found.records, d.records)
	case found.sum != d.sum:
		return fmt.Errorf("%w: the records are not those that were written", ErrCorrupt)
	}
	return nil
}

// store writes the digest with a checksum of its own (CRC-32C, big endian).
func (d *digest) store(tx *bbolt.Tx) error {
	value := binary.BigEndian.AppendUint64(nil, d.records)
	value = binary.BigEndian.AppendUint64(value, d.sum)
	return tx.Bucket(bucketMeta).Put(keyDigest, binary.BigEndian.AppendUint32(value, crc32c(value)))
}

func readDigest(tx *bbolt.Tx) (*digest, error) {
	value := tx.Bucket(bucketMeta).Get(keyDigest)
	if len(value) != digestSize || binary.BigEndian.Uint32(value[16:]) != crc32c(value[:16]) {
		return nil, fmt.Errorf("%w: the digest of all records cannot be read", ErrCorrupt)
	}
	return &digest{records: binary.BigEndian.Uint64(value), sum: binary.BigEndian.Uint64(value[8:])}, nil
}

// digestRecords computes the digest of what is there.
func digestRecords(tx *bbolt.Tx) (*digest, error) {
	d := &digest{}
	err := tx.Bucket(bucketRecords).ForEach(func(k, value []byte) error {
		d.add(k, value)
		return nil
	})
	return d, err
}
