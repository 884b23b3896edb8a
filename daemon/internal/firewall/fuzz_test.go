// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	"testing"
)

// patchbayAttributes accepts messages of any form. If it returns true, the message names the
// table.
func FuzzPatchbayAttributes(f *testing.F) {
	header := []byte{1, 0, 0, 0}
	named := append([]byte{13, 0, 1, 0}, tableName+"\x00\x00\x00\x00"...)
	f.Add(append(header, named...))
	f.Add(append(header, named[:9]...))
	f.Add(append(header, 255, 255, 1, 0))
	f.Add(append(header, 0, 0, 1, 0))
	f.Add(header[:2])
	f.Fuzz(func(t *testing.T, message []byte) {
		attrs, matches, err := patchbayAttributes(message)
		if err == nil && matches && (!bytes.Contains(attrs, []byte(tableName)) || !bytes.HasSuffix(message, attrs)) {
			t.Errorf("%x is matches with the attributes %x", message, attrs)
		}
	})
}
