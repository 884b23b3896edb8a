// SPDX-License-Identifier: Apache-2.0

package mover

import "time"

// output compares with what is stored.
func (s *step) output() Output {
	out := Output{Moves: s.moves, Blocked: s.blocked, After: s.after, Done: true}
	for i := range s.moves {
		m, r := &s.moves[i], s.Rows[i]
		if !s.Counted {
			m.Asked = 0
		}
		if m.State != r.State || m.Asked != r.Asked {
			m.Since = s.Now
		}
		settled := m.State == None || m.State == Active && m.Asked == wantOf(s.Counted, r)
		out.Done = out.Done && settled
	}
	return out
}

func wantOf(counted bool, r Row) int32 {
	if counted {
		return r.Want
	}
	return 0
}

// soonest is the shorter of two times; 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
