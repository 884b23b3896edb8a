// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// For any value on disk, decodeRecord returns the record of the key or ErrCorrupt.
func FuzzDecode(f *testing.F) {
	good, err := encodeRecord(&attach.Record{ContainerID: "c", IfName: "eth0", Interfaces: []attach.Interface{{Name: "eth0"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("c", "eth0", good)
	f.Add("c", "eth0", good[:len(good)-1])
	f.Add("d", "eth0", good)
	f.Fuzz(func(t *testing.T, id, ifName string, value []byte) {
		k, err := recordKey(id, ifName)
		if err != nil {
			return
		}
		rec, err := decodeRecord(k, value)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if rec.ContainerID != id || rec.IfName != ifName {
			t.Errorf("key %q: got the record of %q, %q", k, rec.ContainerID, rec.IfName)
		}
	})
}

// A corrupt page may have any value of a sequence number.
func FuzzDecodeSeq(f *testing.F) {
	k, err := seqKey("node", networkKey("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(k, encodeSeq(k, 7))
	f.Add([]byte{}, []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, k, value []byte) {
		key, seq, err := decodeSeq(k, value)
		if err != nil {
			return
		}
		if back, err := seqKey("node", key); err == nil && !bytes.Equal(encodeSeq(back, seq), value) {
			t.Errorf("sequence number %d of %v: got value %x, want the one that encodeSeq returns", seq, key, value)
		}
	})
}
