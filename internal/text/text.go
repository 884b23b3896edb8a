// SPDX-License-Identifier: Apache-2.0

// Package text shortens texts for messages.
package text

import "strings"

// Truncate returns s, or its first limit bytes and "…" if it is longer. It cuts no character in two.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
