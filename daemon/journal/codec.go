// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
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

// seqSize is the length of a seq on disk, in bytes, big endian.
const seqSize = 8

// seqKey is a network's key in the bucket of a Node UID: kind, namespace, name
// and UID.
func seqKey(nodeUID string, key claims.Key) ([]byte, error) {
	k := strings.Join([]string{key.Ref.Kind, key.Ref.Namespace, key.Ref.Name, key.UID}, separator)
	if nodeUID == "" || key.UID == "" || strings.Count(k, separator) != 3 || len(nodeUID)+len(k) > maxKey {
		return nil, fmt.Errorf("journal key: Node UID %q, network %v with UID %q: both UIDs must be set, without NUL, at most %d bytes",
			nodeUID, key.Ref, key.UID, maxKey)
	}
	return []byte(k), nil
}

// encodeSeq is a checksum over key and seq (CRC-32C, big endian) and the seq.
func encodeSeq(k []byte, seq int64) []byte {
	n := binary.BigEndian.AppendUint64(nil, uint64(seq))
	return append(binary.BigEndian.AppendUint32(nil, sum(slices.Concat(k, n))), n...)
}

// decodeSeq reads what encodeSeq wrote under this key.
func decodeSeq(k, value []byte) (claims.Key, int64, error) {
	parts := strings.Split(string(k), separator)
	if len(parts) != 4 || len(value) != sumSize+seqSize {
		return claims.Key{}, 0, fmt.Errorf("%w: seq %q: %d bytes", ErrCorrupt, showKey(k), len(value))
	}
	n := value[sumSize:]
	if binary.BigEndian.Uint32(value) != sum(slices.Concat(k, n)) {
		return claims.Key{}, 0, fmt.Errorf("%w: seq %q: the checksum does not fit", ErrCorrupt, showKey(k))
	}
	key := claims.Key{Ref: network.Ref{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, UID: parts[3]}
	return key, int64(binary.BigEndian.Uint64(n)), nil
}
