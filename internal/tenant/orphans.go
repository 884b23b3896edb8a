// SPDX-License-Identifier: Apache-2.0

package tenant

import "time"

// GracePeriod is how long a reservation may be without a network: the API server ends a
// creation after a minute, so what is not there by then never comes.
const GracePeriod = time.Minute

// OrphanDetector finds reservations that belong to nobody. It remembers what it saw, so
// that a deleted network's place is free at once and one that is being created is
// not. The zero value is ready. It is not safe for concurrent use.
type OrphanDetector struct {
	seen    map[string]bool
	missing map[string]time.Time
}

// MarkSeen notes that a network with the token was there.
func (s *OrphanDetector) MarkSeen(token string) {
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[token] = true
}

// Orphans returns the tokens to release, given all tokens that are reserved, those
// that networks have, and the time.
func (s *OrphanDetector) Orphans(now time.Time, reserved, alive map[string]bool) []string {
	var gone []string
	seen, missing := map[string]bool{}, map[string]time.Time{}
	for token := range reserved {
		if alive[token] {
			seen[token] = true
			continue
		}
		since, known := s.missing[token]
		if !known {
			since = now
		}
		missing[token] = since
		if s.seen[token] || now.Sub(since) >= GracePeriod {
			gone = append(gone, token)
			seen[token] = s.seen[token]
		}
	}
	s.seen, s.missing = seen, missing
	return gone
}

// Postpone says that a token that is to be released is kept for now: Next does not ask for it
// at once.
func (s *OrphanDetector) Postpone(now time.Time, token string) { s.missing[token] = now }

// NextCheck says when to look again although nothing has changed; false for never.
func (s *OrphanDetector) NextCheck(now time.Time) (time.Duration, bool) {
	if len(s.missing) == 0 {
		return 0, false
	}
	least := GracePeriod
	for _, since := range s.missing {
		least = min(least, since.Add(GracePeriod).Sub(now))
	}
	return max(least, time.Second), true
}
