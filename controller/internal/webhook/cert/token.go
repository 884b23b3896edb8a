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
	// tokenRotationInterval is how long after a token the next one is made.
	tokenRotationInterval = time.Hour
	// maxTokens are accepted: one that is not in the configurations yet, the one that
	// is, and the one before, which an API server may still have, be it that all
	// replicas were away when it was to be replaced.
	maxTokens = 3
)

// token is a secret in the webhooks' paths, and when it was made.
type token struct {
	text    string
	created time.Time
}

// newToken is unguessable. crypto/rand.Read never fails.
func newToken(now time.Time) token {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return token{text: hex.EncodeToString(b[:]), created: now}
}

// renewTokens returns the tokens as they should be now, and whether that differs.
func renewTokens(old []token, now time.Time) ([]token, bool) {
	if len(old) > 0 && now.Sub(old[0].created) < tokenRotationInterval {
		return old, false
	}
	next := slices.Insert(slices.Clone(old), 0, newToken(now))
	return next[:min(len(next), maxTokens)], true
}

// encodeTokens writes a line for each token.
func encodeTokens(tokens []token) []byte {
	var lines []string
	for _, t := range tokens {
		lines = append(lines, t.text+" "+t.created.UTC().Format(time.RFC3339))
	}
	return []byte(strings.Join(lines, "\n"))
}

// decodeTokens reads them again. One without a readable time is old; what is no token
// is left out, and others are made.
func decodeTokens(data []byte) []token {
	var tokens []token
	for line := range strings.Lines(string(data)) {
		text, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if b, err := hex.DecodeString(text); err != nil || len(b) != 16 {
			continue
		}
		made, _ := time.Parse(time.RFC3339, at)
		tokens = append(tokens, token{text: text, created: made})
	}
	return tokens
}
