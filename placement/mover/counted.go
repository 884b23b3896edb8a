// SPDX-License-Identifier: Apache-2.0

package mover

// desired is how many replicas are wanted in all.
func (s *step) desired() (sum int32) {
	for _, r := range s.Rows {
		sum += r.Want
	}
	return sum
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
