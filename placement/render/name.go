// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Name is the name of the Assignment, Works and AppliedWork of an object: its kind and
// name as far as there is room, and a digest of group, kind, namespace and name. It is
// a DNS label.
func Name(group, kind, namespace, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{group, kind, namespace, name}, "\x00")))
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-' // a name may have dots and, for RBAC, colons
	}, strings.ToLower(kind+"-"+name))
	readable = strings.Trim(readable[:min(len(readable), 46)], "-")
	if readable == "" || readable[0] < 'a' {
		readable = "x" + readable
	}
	return readable + "-" + hex.EncodeToString(sum[:8])
}
