// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// separator stands between container ID and interface name; neither has a NUL.
const separator = "\x00"

// maxKey keeps keys well below bbolt's limit: one key that is too long would
// fail the commit of all that share it.
const maxKey = 1024

// sumSize is the length of the checksum in front of a record, in bytes. bbolt
// has none on data pages, and a flipped bit is often still good JSON.
const sumSize = crc32.Size

func key(containerID, ifName string) ([]byte, error) {
	k := containerID + separator + ifName
	if containerID == "" || ifName == "" || strings.Count(k, separator) != 1 || len(k) > maxKey {
		return nil, fmt.Errorf("journal key: container %q, interface %q: both must be set, without NUL, at most %d bytes",
			containerID, ifName, maxKey)
	}
	return []byte(k), nil
}

// showKey writes a key for a person.
func showKey(k []byte) string { return strings.ReplaceAll(string(k), separator, "/") }

// encode is the record's checksum (CRC-32C, big endian) and its JSON.
func encode(rec *attach.Record) ([]byte, error) {
	doc, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	value := binary.BigEndian.AppendUint32(make([]byte, 0, sumSize+len(doc)), sum(doc))
	return append(value, doc...), nil
}

// decode reads what encode wrote under this key.
func decode(k, value []byte) (*attach.Record, error) {
	if len(value) < sumSize {
		return nil, fmt.Errorf("%w: record %q: %d bytes", ErrCorrupt, showKey(k), len(value))
	}
	if doc := value[sumSize:]; binary.BigEndian.Uint32(value) != sum(doc) {
		return nil, fmt.Errorf("%w: record %q: the checksum does not fit", ErrCorrupt, showKey(k))
	}
	rec := &attach.Record{}
	if err := json.Unmarshal(value[sumSize:], rec); err != nil {
		return nil, fmt.Errorf("%w: record %q: %w", ErrCorrupt, showKey(k), err)
	}
	if own := rec.ContainerID + separator + rec.IfName; own != string(k) {
		return nil, fmt.Errorf("%w: record %q: it belongs to %q", ErrCorrupt, showKey(k), showKey([]byte(own)))
	}
	return rec, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(doc []byte) uint32 { return crc32.Checksum(doc, castagnoli) }
