// SPDX-License-Identifier: Apache-2.0

package mover

import "fmt"

// start gives the object to all clusters that are to have it.
func (s *step) start() {
	if s.waitsForPolicy() {
		return
	}
	for i := range s.moves {
		if s.moves[i].State == Pending {
			s.moves[i].State = Active
		}
	}
}

// waitsForPolicy says that what has not started waits for a policy: what leaves may have to be gone
// before.
func (s *step) waitsForPolicy() bool {
	if !s.NoPolicy {
		return false
	}
	for _, m := range s.moves {
		if m.State == Draining || m.State == Removing {
			return true
		}
	}
	return false
}

// covered says that the wanted clusters have taken over what the others are to lose.
func (s *step) covered() bool {
	if s.late() {
		return true
	}
	for i, r := range s.Rows {
		if r.Wanted && (!r.Ready || !r.Current || !r.Reachable || r.State != Active) {
			if s.leaving() {
				s.blockf("%s is not ready (%s)", r.Cluster, s.moves[i].State)
			}
			return false
		}
	}
	return true
}

// leaving says that some cluster is to lose the object.
func (s *step) leaving() bool {
	for _, m := range s.moves {
		if m.State == Draining {
			return true
		}
	}
	return false
}

// remove gives the order to clusters that report, are empty and have settled.
func (s *step) remove() {
	for i, r := range s.Rows {
		m := &s.moves[i]
		if m.State != Draining || r.Wanted {
			continue
		}
		if r.Absent {
			s.blockf("%s is not in the inventory: what it has stays there", r.Cluster)
			continue
		}
		if !r.Reachable && !s.late() { // an order that waits there could not be taken back in time
			s.blockf("%s cannot be reached: what it has stays there", r.Cluster)
			continue
		}
		if r.State != Draining || m.Asked != r.Asked { // stored first, so that Since is right
			if s.Settle > 0 || s.Counted && r.Asked > 0 {
				s.after = soonest(s.after, s.Settle)
				continue
			}
		}
		if s.Counted && !s.late() && (m.Asked > 0 || r.Asked > 0 || !r.Current || r.Total > 0) {
			if m.Asked == 0 {
				s.blockf("%d replicas are still in %s", r.Total, r.Cluster)
			}
			continue
		}
		if s.left(m.Since, s.Settle) == 0 {
			m.State, m.Asked = Removing, 0
		}
	}
}

func (s *step) anyWanted() bool {
	for _, r := range s.Rows {
		if r.Wanted {
			return true
		}
	}
	return false
}

// blockf keeps the first reason.
func (s *step) blockf(format string, args ...any) {
	if s.blocked == "" {
		s.blocked = fmt.Sprintf(format, args...)
	}
}
