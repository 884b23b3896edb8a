// SPDX-License-Identifier: Apache-2.0

package mover

import "time"

// Step says what to ask of each cluster next.
func Step(in Input) Output {
	s := newStep(in)
	switch {
	case !s.anyWanted():
		s.removeAll()
	case in.BreakFirst:
		s.breakFirst()
	default:
		s.makeFirst()
	}
	return s.output()
}

// step is a step in the making.
type step struct {
	Input
	moves   []Move
	blocked string
	after   time.Duration
}

func newStep(in Input) *step {
	s := &step{Input: in, moves: make([]Move, len(in.Rows))}
	for i, r := range in.Rows {
		m := Move{Cluster: r.Cluster, State: r.State, Asked: r.Asked, Since: r.Since}
		switch {
		case r.State == Removing && !r.Gone:
			if m.Asked = 0; r.Wanted { // the order is taken back
				m.State = Active
			}
		case r.Gone, r.State == None:
			m.State, m.Asked = None, 0
			if r.Wanted {
				m.State = Pending
			}
		case r.State == Pending && !r.Wanted:
			m.State, m.Asked = None, 0
		case !r.Wanted:
			m.State = Draining
		case r.State == Draining:
			m.State = Active
		}
		s.moves[i] = m
	}
	return s
}

// removeAll gives the order everywhere: nothing is wanted, so nothing is to be kept.
func (s *step) removeAll() {
	for i := range s.moves {
		if s.moves[i].State == Draining || s.moves[i].State == Active {
			s.moves[i].State, s.moves[i].Asked = Removing, 0
		}
	}
}

// makeFirst grows, then shrinks what is covered, then removes.
func (s *step) makeFirst() {
	if !s.Counted {
		s.start()
		if s.covered() {
			s.remove()
		}
		return
	}
	s.grow()
	s.shrink()
	s.remove()
}

// breakFirst shrinks and removes, and grows only when that is done.
func (s *step) breakFirst() {
	if away := s.away(); away != "" && s.leaving() && !s.late() {
		s.blockf("%s cannot be reached: what is elsewhere stays there", away)
		return
	}
	busy := ""
	for i, r := range s.Rows {
		m := &s.moves[i]
		if m.State == Active || m.State == Draining {
			m.Asked = min(m.Asked, r.Want)
		}
		fewer := m.Asked < r.Asked || !r.Current || r.Total > m.Asked
		if m.State == Removing || m.State == Draining || s.Counted && m.State == Active && r.Want < r.Total && fewer {
			busy = r.Cluster
		}
	}
	s.remove()
	if busy != "" {
		if s.waiting() {
			s.blockf("%s must be done first: what is there must not run twice", busy)
		}
		return
	}
	if s.Counted {
		s.grow()
		return
	}
	s.start()
}

// away is a cluster that is to get the object next and cannot be reached.
func (s *step) away() string {
	for i, r := range s.Rows {
		if r.Wanted && s.moves[i].State == Pending && (r.Absent || !r.Reachable) {
			return r.Cluster
		}
	}
	return ""
}

// waiting says that a cluster is to have more than it has.
func (s *step) waiting() bool {
	for i, r := range s.Rows {
		if r.Wanted && (s.moves[i].State == Pending || s.Counted && s.moves[i].Asked < r.Want) {
			return true
		}
	}
	return false
}

// late says that the deadline has passed and is not to be waited for.
func (s *step) late() bool {
	return s.Proceed && s.Deadline > 0 && s.left(s.Since, s.Deadline) == 0
}

// left is how much is left of a time that began at since; it is looked at again then.
func (s *step) left(since time.Time, of time.Duration) time.Duration {
	left := max(0, of-s.Now.Sub(since))
	if left > 0 && (s.after == 0 || left < s.after) {
		s.after = left
	}
	return left
}
