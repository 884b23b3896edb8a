// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// separator stands between container ID and interface name; neither has a NUL.
const separator = "\x00"

// maxKeySize keeps keys well below bbolt's limit: one key that is too long would
// fail the commit of all that share it.
const maxKeySize = 1024

// checksumSize is the length of the checksum in front of a record, in bytes. bbolt
// has none on data pages, and a flipped bit is often still good JSON.
const checksumSize = crc32.Size

func recordKey(containerID, ifName string) ([]byte, error) {
	k := containerID + separator + ifName
	if containerID == "" || ifName == "" || strings.Count(k, separator) != 1 || len(k) > maxKeySize {
		return nil, fmt.Errorf("journal key: container %q, interface %q: both must be set, without NUL, at most %d bytes",
			containerID, ifName, maxKeySize)
	}
	return []byte(k), nil
}

// formatKey writes a key for a person.
func formatKey(k []byte) string { return strings.ReplaceAll(string(k), separator, "/") }

// encodeRecord is the record's checksum (CRC-32C, big endian) and its JSON.
func encodeRecord(rec *attach.Record) ([]byte, error) {
	doc, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	value := binary.BigEndian.AppendUint32(make([]byte, 0, checksumSize+len(doc)), crc32c(doc))
	return append(value, doc...), nil
}

// decodeRecord reads what encode wrote under this key.
func decodeRecord(k, value []byte) (*attach.Record, error) {
	if len(value) < checksumSize {
		return nil, fmt.Errorf("%w: record %q: %d bytes", ErrCorrupt, formatKey(k), len(value))
	}
	if doc := value[checksumSize:]; binary.BigEndian.Uint32(value) != crc32c(doc) {
		return nil, fmt.Errorf("%w: record %q: the checksum does not fit", ErrCorrupt, formatKey(k))
	}
	rec := &attach.Record{}
	if err := json.Unmarshal(value[checksumSize:], rec); err != nil {
		return nil, fmt.Errorf("%w: record %q: %w", ErrCorrupt, formatKey(k), err)
	}
	if own := rec.ContainerID + separator + rec.IfName; own != string(k) {
		return nil, fmt.Errorf("%w: record %q: it belongs to %q", ErrCorrupt, formatKey(k), formatKey([]byte(own)))
	}
	return rec, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(doc []byte) uint32 { return crc32.Checksum(doc, castagnoli) }

// seqSize is the length of a seq on disk, in bytes, big endian.
const seqSize = 8

// seqKey is a network's key in the bucket of a Node UID: kind, namespace, name
// and UID.
func seqKey(nodeUID string, key claims.Key) ([]byte, error) {
	k := strings.Join([]string{key.Ref.Kind, key.Ref.Namespace, key.Ref.Name, key.UID}, separator)
	if nodeUID == "" || key.UID == "" || strings.Count(k, separator) != 3 || len(nodeUID)+len(k) > maxKeySize {
		return nil, fmt.Errorf("journal key: Node UID %q, network %v with UID %q: both UIDs must be set, without NUL, at most %d bytes",
			nodeUID, key.Ref, key.UID, maxKeySize)
	}
	return []byte(k), nil
}

// encodeSeq is a checksum over key and seq (CRC-32C, big endian) and the seq.
func encodeSeq(k []byte, seq int64) []byte {
	n := binary.BigEndian.AppendUint64(nil, uint64(seq))
	return append(binary.BigEndian.AppendUint32(nil, crc32c(slices.Concat(k, n))), n...)
}

// decodeSeq reads what encodeSeq wrote under this key.
func decodeSeq(k, value []byte) (claims.Key, int64, error) {
	parts := strings.Split(string(k), separator)
	if len(parts) != 4 || len(value) != checksumSize+seqSize {
		return claims.Key{}, 0, fmt.Errorf("%w: seq %q: %d bytes", ErrCorrupt, formatKey(k), len(value))
	}
	n := value[checksumSize:]
	if binary.BigEndian.Uint32(value) != crc32c(slices.Concat(k, n)) {
		return claims.Key{}, 0, fmt.Errorf("%w: seq %q: the checksum does not fit", ErrCorrupt, formatKey(k))
	}
	key := claims.Key{Ref: network.Ref{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, UID: parts[3]}
	return key, int64(binary.BigEndian.Uint64(n)), nil
}
