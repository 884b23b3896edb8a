// SPDX-License-Identifier: Apache-2.0

package tenant

import "time"

// GracePeriod is the time for which a reservation may be without a network. The API server ends a
// creation after a minute: a network that is not stored by then never will be.
const GracePeriod = time.Minute

// OrphanDetector finds reservations without a network. It remembers the networks that it has seen, so
// that the slot of a deleted network is released at once, and that of a network in creation is not. The
// zero value is ready to use. It is not safe for concurrent use.
type OrphanDetector struct {
	seen    map[string]bool
	missing map[string]time.Time
}

// MarkSeen records that a network with the token has existed.
func (s *OrphanDetector) MarkSeen(token string) {
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[token] = true
}

// Orphans returns the tokens to release. Reserved has all reserved tokens, and alive has those of
// networks that exist.
func (s *OrphanDetector) Orphans(now time.Time, reserved, alive map[string]bool) []string {
	var orphans []string
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
			orphans = append(orphans, token)
			seen[token] = s.seen[token]
		}
	}
	s.seen, s.missing = seen, missing
	return orphans
}

// Postpone keeps a token that Orphans has returned: NextCheck does not request a check for it at once.
func (s *OrphanDetector) Postpone(now time.Time, token string) { s.missing[token] = now }

// NextCheck returns the time until the next check without a change, and false if none is needed.
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
