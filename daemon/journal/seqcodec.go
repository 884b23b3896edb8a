// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

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
