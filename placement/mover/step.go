// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"fmt"
	"time"
)

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

func (s *step) anyWanted() bool {
	for _, r := range s.Rows {
		if r.Wanted {
			return true
		}
	}
	return false
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

// grow asks for more where less is asked than wanted, as far as the surge allows.
func (s *step) grow() {
	room := s.desired() + s.surge()
	for _, m := range s.moves {
		room -= m.Asked
	}
	for i, r := range s.Rows {
		m := &s.moves[i]
		if !r.Wanted || m.State == Removing || m.State == Pending && s.waitsForPolicy() {
			continue
		}
		more := max(0, min(r.Want-m.Asked, room))
		m.Asked += more
		room -= more
		if m.State == Pending && (more > 0 || r.Want == 0) {
			m.State = Active
		}
	}
}

// surge is at least one where nothing may be missing, or no move could ever begin.
func (s *step) surge() int32 {
	if s.Unavailable == 0 {
		return max(1, s.Surge)
	}
	return s.Surge
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

// shrink asks for less where more is asked than wanted, as far as what stays
// available allows.
func (s *step) shrink() {
	need := max(0, s.desired()-s.Unavailable)
	if s.late() {
		need = 0
	}
	spare := s.available() - need
	for i, r := range s.Rows {
		m := &s.moves[i]
		over := m.Asked - r.Want
		if over <= 0 || m.State == Removing {
			continue
		}
		if !r.Reachable && need > 0 {
			s.blockf("%s cannot be reached: its %d replicas stay as they are", r.Cluster, m.Asked)
			continue
		}
		counted := s.counts(i)
		idle := m.Asked - counted // asked and not there: to give them up costs nothing
		if spare < 0 && !s.scalesDown() {
			idle = 0
		}
		less := min(over, idle+max(0, spare))
		if s.only(i) { // one cluster scales down as a Deployment does
			less = over
		}
		spare -= max(0, less-idle)
		m.Asked -= less
		if less < over {
			s.blockf("%d replicas stay in %s until more are available: %d of %d are", over-less, r.Cluster, s.available(), need)
		}
	}
}

// scalesDown says that nothing moves and nothing is there to be kept: fewer replicas
// are wanted of what does not run anyway.
func (s *step) scalesDown() bool {
	for i, r := range s.Rows {
		if !r.Wanted || !r.Current || s.moves[i].Asked < r.Want {
			return false
		}
	}
	return s.available() == 0
}

// only says that all that is asked is asked of this cluster, and it is wanted there:
// its own controller then keeps available what is wanted.
func (s *step) only(i int) bool {
	for j, m := range s.moves {
		if j != i && (m.Asked > 0 || s.Rows[j].Want > 0) {
			return false
		}
	}
	return s.Rows[i].Wanted
}

// counts is how many replicas of a cluster can be relied on: none while its report speaks
// of what was asked before, as fewer may have been asked in between.
func (s *step) counts(i int) int32 {
	r := s.Rows[i]
	if !r.Reachable || !r.Current || s.moves[i].State == Removing {
		return 0
	}
	return max(0, min(r.Available, r.Asked))
}

// available is the sum of what can be relied on.
func (s *step) available() (sum int32) {
	for i := range s.Rows {
		sum += min(s.counts(i), s.moves[i].Asked)
	}
	return sum
}

// desired is how many replicas are wanted in all.
func (s *step) desired() (sum int32) {
	for _, r := range s.Rows {
		sum += r.Want
	}
	return sum
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

// soonest is the shorter of two times; 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// blockf keeps the first reason.
func (s *step) blockf(format string, args ...any) {
	if s.blocked == "" {
		s.blocked = fmt.Sprintf(format, args...)
	}
}

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
