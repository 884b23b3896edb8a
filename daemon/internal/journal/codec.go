// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// separator separates the parts of a key. No part contains a NUL.
const separator = "\x00"

// maxKeySize is well below bbolt's limit. A longer key would fail all changes of its commit.
const maxKeySize = 1024

// checksumSize is the length of the checksum before a record, in bytes. bbolt has no checksum of
// data pages, and JSON with a flipped bit is often valid.
const checksumSize = crc32.Size

// recordKey returns the key of a record.
func recordKey(containerID, ifName string) ([]byte, error) {
	k := containerID + separator + ifName
	if containerID == "" || ifName == "" || strings.Count(k, separator) != 1 || len(k) > maxKeySize {
		return nil, fmt.Errorf("journal key: container %q, interface %q: both must be set, without NUL, and at most %d bytes",
			containerID, ifName, maxKeySize)
	}
	return []byte(k), nil
}

// formatKey returns a key in the form of messages.
func formatKey(k []byte) string { return strings.ReplaceAll(string(k), separator, "/") }

// encodeRecord returns the record as JSON after its checksum (CRC-32C, big endian).
func encodeRecord(rec *attach.Record) ([]byte, error) {
	doc, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	value := binary.BigEndian.AppendUint32(make([]byte, 0, checksumSize+len(doc)), crc32c(doc))
	return append(value, doc...), nil
}

// decodeRecord decodes the value that encodeRecord returned for the record with this key.
func decodeRecord(k, value []byte) (*attach.Record, error) {
	if len(value) < checksumSize {
		return nil, fmt.Errorf("%w: record %q: %d bytes", ErrCorrupt, formatKey(k), len(value))
	}
	if doc := value[checksumSize:]; binary.BigEndian.Uint32(value) != crc32c(doc) {
		return nil, fmt.Errorf("%w: record %q: the checksum does not match", ErrCorrupt, formatKey(k))
	}
	rec := &attach.Record{}
	if err := json.Unmarshal(value[checksumSize:], rec); err != nil {
		return nil, fmt.Errorf("%w: record %q: %w", ErrCorrupt, formatKey(k), err)
	}
	if own := rec.ContainerID + separator + rec.IfName; own != string(k) {
		return nil, fmt.Errorf("%w: record %q: it has the content of record %q", ErrCorrupt, formatKey(k), formatKey([]byte(own)))
	}
	return rec, nil
}

// castagnoli returns the table that the standard library has in memory.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// crc32c returns the CRC-32C of a document.
func crc32c(doc []byte) uint32 { return crc32.Checksum(doc, castagnoli()) }
