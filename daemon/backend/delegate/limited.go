// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"bytes"
	"fmt"
	"strings"
)

// limited keeps the first bytes of what is written to it.
// The buffer is not embedded: with its ReadFrom a copy would go past the limit.
type limited struct {
	buf  bytes.Buffer
	most int
	over bool
}

// Write never fails: a plugin that prints too much is not to hang or to die of it.
func (l *limited) Write(p []byte) (int, error) {
	n := len(p)
	if room := l.most - l.buf.Len(); n > room {
		l.over, p = true, p[:room]
	}
	_, _ = l.buf.Write(p)
	return n, nil
}

// quoted is the text for the end of a message.
func (l *limited) quoted() string {
	text := clip(strings.TrimSpace(l.buf.String()))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %q", text)
}

// clip shortens what a plugin says to what fits a message.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
