// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"testing"
)

// FuzzReadFrame holds that what is read is what was written, and that nothing else is
// taken for a frame.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 2, 'h', 'i'})
	f.Add([]byte{4, 0, 1, 0, 0})
	f.Add([]byte{1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, raw []byte) {
		k, data, err := readFrame(bytes.NewReader(raw))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := (&frames{out: &again}).write(k, data); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(raw, again.Bytes()) {
			t.Errorf("%x was read as a frame of kind %d with %x", raw, k, data)
		}
	})
}
