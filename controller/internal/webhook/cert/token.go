// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

const (
	// tokenRotationInterval is the time between two new tokens.
	tokenRotationInterval = time.Hour
	// maxTokens is how many tokens are accepted: one that is not in the configurations yet, the one
	// that is, and the one before, which an API server may still use, for instance when no replica
	// ran while it was to be replaced.
	maxTokens = 3
)

// token is a secret in the webhooks' paths, with its creation time.
type token struct {
	text    string
	created time.Time
}

// newToken returns an unguessable token. crypto/rand.Read never fails.
func newToken(now time.Time) token {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return token{text: hex.EncodeToString(b[:]), created: now}
}

// renewTokens returns the tokens as they should be now, and whether they differ.
func renewTokens(old []token, now time.Time) ([]token, bool) {
	if len(old) > 0 && now.Sub(old[0].created) < tokenRotationInterval {
		return old, false
	}
	next := slices.Insert(slices.Clone(old), 0, newToken(now))
	return next[:min(len(next), maxTokens)], true
}

// encodeTokens writes one line per token.
func encodeTokens(tokens []token) []byte {
	var lines []string
	for _, t := range tokens {
		lines = append(lines, t.text+" "+t.created.UTC().Format(time.RFC3339))
	}
	return []byte(strings.Join(lines, "\n"))
}

// decodeTokens parses what encodeTokens wrote. A token without a readable time counts as old, and a
// line without a token is ignored.
func decodeTokens(data []byte) []token {
	var tokens []token
	for line := range strings.Lines(string(data)) {
		text, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if b, err := hex.DecodeString(text); err != nil || len(b) != 16 {
			continue
		}
		created, _ := time.Parse(time.RFC3339, at)
		tokens = append(tokens, token{text: text, created: created})
	}
	return tokens
}
