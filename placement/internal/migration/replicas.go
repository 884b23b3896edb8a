// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"math"
	"time"
)

// recheck is when to compute a step again because time passes: a heartbeat without news lets a report last longer.
const recheck = 5 * time.Second

// markFallbacks notes how many replicas the clusters have that begin to lose some to others, without those that count
// as unavailable.
func (s *stepState) markFallbacks() {
	gains := false
	for i, r := range s.Targets {
		gains = gains || r.Desired > s.transitions[i].Requested
	}
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if (m.State == Active || m.State == Draining) && m.Requested > r.Desired && (gains || m.Fallback > 0 || !r.Wanted) {
			m.Fallback = max(m.Fallback, m.Requested-s.unavailable(i))
		}
	}
}

// rollBack requests replicas again of clusters that have lost them, when too few are left that may be available.
// They ran there a moment ago: the surge does not limit them.
func (s *stepState) rollBack() {
	s.missing = max(0, s.need()-s.totalAtMost())
	missing := s.missing
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if m.State != Active && m.State != Draining || !r.Reachable || r.NotInInventory || s.proceeds(i) {
			continue
		}
		back := max(0, min(missing, m.Fallback-m.Requested))
		if r.AllAtOnce && back > 0 {
			back = m.Fallback - m.Requested
		}
		m.Requested += back
		missing = max(0, missing-back)
		s.rolledBack += back
	}
}

// grow requests more replicas where fewer than desired are requested, within the surge. What is lost takes no room,
// nor what a cluster does not run and is to lose.
func (s *stepState) grow() {
	room := s.totalDesired() + s.effectiveSurge()
	for i, m := range s.transitions {
		switch r := s.Targets[i]; {
		case r.Lost, r.AllAtOnce:
		case m.Requested > r.Desired:
			room -= max(r.Desired, m.Requested-s.unavailable(i))
		default:
			room -= m.Requested
		}
	}
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if !r.Wanted || m.State == Removing || m.State == Pending && (s.waitsForPolicy() || s.awaits(i)) {
			continue
		}
		more := max(0, min(r.Desired-m.Requested, room))
		m.Requested += more
		room -= more
		if m.State == Pending && (more > 0 || r.Desired == 0) {
			m.State = Active
		}
	}
}

// effectiveSurge is at least 1 when no replica may be unavailable, because else no move could start.
func (s *stepState) effectiveSurge() int32 {
	if s.MaxUnavailable == 0 {
		return max(1, s.MaxSurge)
	}
	return s.MaxSurge
}

// shrink requests fewer replicas where more than desired are requested, as far as enough stay available.
func (s *stepState) shrink() {
	for _, atOnce := range []func(int) bool{s.isOnlyTarget, s.proceeds} {
		for i, r := range s.Targets {
			if m := &s.transitions[i]; s.takesOrders(i) && atOnce(i) {
				m.Requested = min(m.Requested, r.Desired)
			}
		}
	}
	spare := s.totalAvailable() - s.need()
	limit := s.stepLimit()
	for i, r := range s.Targets {
		m := &s.transitions[i]
		over := m.Requested - r.Desired
		if over <= 0 || m.State == Removing || !s.canShrink(i) {
			continue
		}
		uncounted := m.Requested - min(s.availableIn(i), m.Requested)
		idle := min(s.unavailable(i), m.Requested)
		less := min(over, s.removable(i, spare))
		if r.AllAtOnce && less < over {
			less, idle = 0, 0
		}
		if less < over {
			reason, cluster := s.whyFewAvailable(i)
			s.blockf(reason, cluster, "%d replicas stay in %s until others replace them: %d are available, and %d are needed%s",
				over-less, r.Cluster, min(s.totalAvailable(), s.need()), s.need(), cause(reason, cluster))
		}
		if less > idle && s.holdsTraffic(i) {
			if less = idle; r.AllAtOnce {
				less = 0
			}
		}
		if unproven := less - idle; unproven > 0 && !r.AllAtOnce {
			unproven = min(unproven, limit)
			limit -= unproven
			less = idle + unproven
		}
		spare -= max(0, less-uncounted)
		m.Requested -= less
	}
}

// stepLimit returns how many replicas a step may remove of those that do not count as unavailable: a quarter in a
// move, and all in a scale-down.
func (s *stepState) stepLimit() int32 {
	for i, r := range s.Targets {
		m := s.transitions[i]
		if m.Fallback > 0 || m.State == Draining && m.Requested > 0 && !r.Lost {
			return max(1, s.totalDesired()/4, s.MaxUnavailable)
		}
	}
	return math.MaxInt32
}

// canShrink tells whether a cluster may get the order to run fewer replicas. When none is needed, an unreachable one may.
func (s *stepState) canShrink(i int) bool {
	r := s.Targets[i]
	switch {
	case r.Lost:
		return false
	case s.takesOrders(i) || s.need() == 0 && !r.NotInInventory:
		return true
	}
	s.blockUnreachable(i, fmt.Sprintf("its %d replicas stay as they are", s.transitions[i].Requested))
	return false
}

// removable returns how many replicas a cluster can lose. With enough available, these are the spare ones and all
// that do not count as available. Below that, those that count as unavailable, but not while they are given back:
// they need time to start.
func (s *stepState) removable(i int, spare int32) int32 {
	m := s.transitions[i]
	if spare >= 0 {
		return spare + m.Requested - min(s.availableIn(i), m.Requested)
	}
	idle := min(s.unavailable(i), m.Requested)
	if s.missing > 0 && m.Fallback > 0 {
		idle = min(idle, max(0, m.Requested-m.Fallback))
	}
	return idle
}

// isOnlyTarget tells whether the object is requested and wanted in this cluster only: then the cluster's own
// controller keeps the desired replicas available.
func (s *stepState) isOnlyTarget(i int) bool {
	for j, m := range s.transitions {
		if j != i && (m.Requested > 0 || s.Targets[j].Desired > 0) {
			return false
		}
	}
	return s.Targets[i].Wanted
}

// need is how many replicas must be available.
func (s *stepState) need() int32 {
	if s.isDeadlinePassed() {
		return 0
	}
	return max(0, s.totalDesired()-s.MaxUnavailable)
}

// availableIn returns how many replicas of a cluster count as available: none while its report belongs to an earlier
// request, because fewer may have been requested since, and none before it has reported after the last shrink.
func (s *stepState) availableIn(i int) int32 {
	r := s.Targets[i]
	if !r.Reachable || !r.ReportCurrent || r.State == Removing || !s.reportedSinceShrink(i) || !s.reportedSinceReturn(i) {
		return 0
	}
	return max(0, min(r.Available, r.Requested))
}

func (s *stepState) reportedSinceShrink(i int) bool {
	return s.lastShrink.IsZero() || s.Targets[i].Until.After(s.lastShrink)
}

// reportedSinceReturn tells whether a cluster that was lost has reported for long enough since.
func (s *stepState) reportedSinceReturn(i int) bool {
	r, m := s.Targets[i], s.transitions[i]
	return r.State != Lost && (!m.Returned || !r.Until.Before(m.Since.Add(s.Stable)))
}

// atMost returns how many of the requested replicas of a cluster may be available: all until they have been requested
// for Stable, then at most as many as reports have said since.
func (s *stepState) atMost(i int) int32 {
	r := s.Targets[i]
	if r.Until.Before(s.transitions[i].Since.Add(s.Stable)) {
		return r.Requested
	}
	return max(0, min(r.AtMost, r.Requested))
}

// unavailable returns how many requested replicas of a cluster count as unavailable.
func (s *stepState) unavailable(i int) int32 {
	if r := s.Targets[i]; r.Reachable && r.ReportCurrent && r.State != Removing {
		return r.Requested - s.atMost(i)
	}
	return 0
}

// totalAvailable returns the sum of available replicas that count and stay requested.
func (s *stepState) totalAvailable() (sum int32) {
	for i := range s.Targets {
		sum += min(s.availableIn(i), s.transitions[i].Requested)
	}
	return sum
}

// totalAtMost returns the sum of the replicas that may be available. Those of an unreachable cluster may be, unless
// it is lost.
func (s *stepState) totalAtMost() (sum int32) {
	for i, r := range s.Targets {
		if !r.Lost && s.transitions[i].State != Removing {
			sum += min(s.atMost(i), s.transitions[i].Requested)
		}
	}
	return sum
}

// totalDesired returns the sum of the desired replicas.
func (s *stepState) totalDesired() (sum int32) {
	for _, r := range s.Targets {
		sum += r.Desired
	}
	return sum
}

// whyFewAvailable returns a cluster whose replicas do not count as available, and why. It is called for a cluster
// that waits for them, and returns that one if there is none.
func (s *stepState) whyFewAvailable(waits int) (BlockedReason, string) {
	lacks := func(i int, of int32) bool { return s.availableIn(i) < of }
	grows := func(i int) bool { return s.transitions[i].Requested < s.Targets[i].Desired }
	for _, is := range []func(i int) bool{
		func(i int) bool {
			return lacks(i, min(s.Targets[i].Requested, s.transitions[i].Requested, s.Targets[i].Desired))
		},
		func(i int) bool { return grows(i) && s.whyNotAvailable(i) != NotAvailable },
		func(i int) bool { return lacks(i, min(s.transitions[i].Requested, s.Targets[i].Desired)) },
		func(i int) bool { return lacks(i, s.transitions[i].Requested) }, // it is to lose them
		grows, // there is no room for it
	} {
		for i, r := range s.Targets {
			if is(i) && (r.Wanted || !r.Lost) {
				return s.whyNotAvailable(i), r.Cluster
			}
		}
	}
	return NotAvailable, s.Targets[waits].Cluster
}

// whyNotAvailable returns why replicas of a cluster do not count as available.
func (s *stepState) whyNotAvailable(i int) BlockedReason {
	r := s.Targets[i]
	switch {
	case r.NotInInventory:
		return NotInInventory
	case !r.Reachable:
		return Unreachable
	case s.transitions[i].State == Pending && s.waitsForPolicy():
		return PolicyMissing
	case (r.State == Active || r.State == Draining) && (!r.ReportCurrent || !s.reportedSinceShrink(i) || !s.reportedSinceReturn(i)):
		return NotReported
	}
	return NotAvailable
}

// cause says why replicas are not available, unless that is all that is known.
func cause(reason BlockedReason, cluster string) string {
	switch reason {
	case NotInInventory:
		return fmt.Sprintf("; %s is not in the inventory", cluster)
	case Unreachable:
		return fmt.Sprintf("; %s cannot be reached", cluster)
	case NotReported:
		return fmt.Sprintf("; %s has not reported since the last step", cluster)
	case PolicyMissing:
		return fmt.Sprintf("; %s gets replicas when a policy selects the object again", cluster)
	}
	return ""
}

// changesWithTime tells whether the next step may differ without a report of a change: what a reachable cluster
// reports has not lasted, or is not known to be after the last shrink.
func (s *stepState) changesWithTime() bool {
	for i, r := range s.Targets {
		if !r.Reachable || !r.ReportCurrent || s.BreakBeforeMake {
			continue
		}
		if !s.Divided && r.Ready && (!r.StableReady || !s.reportedSinceReturn(i)) {
			return true
		}
		if s.Divided && (!s.reportedSinceShrink(i) || !s.reportedSinceReturn(i) || min(r.Available, r.Requested) < s.atMost(i)) {
			return true
		}
	}
	return false
}
