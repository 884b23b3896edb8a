// SPDX-License-Identifier: Apache-2.0

// Package text shortens texts for messages.
package text

import (
	"strings"
	"unicode"
)

// Truncate returns s, or its beginning and its end with "…" between them if it is longer than limit
// bytes: both may say what a value is. It cuts no character in two.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head := (limit + 1) / 2
	return strings.ToValidUTF8(s[:head], "") + "…" + strings.ToValidUTF8(s[len(s)-(limit-head):], "")
}

// OneLine replaces line breaks and other characters that are not printed with spaces, such as those that control a
// terminal. A text that a node has written may have any.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}
