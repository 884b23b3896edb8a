// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	"testing"
)

// The kernel's message about a chain or rule: a message of any form is one of ours or not,
// and one of ours names the table.
func FuzzAttributesOfOurs(f *testing.F) {
	header := []byte{1, 0, 0, 0}
	named := append([]byte{13, 0, 1, 0}, tableName+"\x00\x00\x00\x00"...)
	f.Add(append(header, named...))
	f.Add(append(header, named[:9]...))
	f.Add(append(header, 255, 255, 1, 0))
	f.Add(append(header, 0, 0, 1, 0))
	f.Add(header[:2])
	f.Fuzz(func(t *testing.T, message []byte) {
		attrs, ours, err := patchbayAttributes(message)
		if err == nil && ours && (!bytes.Contains(attrs, []byte(tableName)) || !bytes.HasSuffix(message, attrs)) {
			t.Errorf("%x is ours with the attributes %x", message, attrs)
		}
	})
}
