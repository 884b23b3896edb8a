// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"time"
)

// Step computes the next transition of each cluster.
func Step(in Input) Output {
	s := newStepState(in)
	switch {
	case !s.anyWanted():
		s.removeAll()
	case in.BreakBeforeMake:
		s.breakBeforeMake()
	default:
		s.makeBeforeBreak()
	}
	return s.result()
}

// stepState is the intermediate state of one step.
type stepState struct {
	Input
	transitions  []Transition
	rolledBack   int32
	blocked      Blocked
	requeueAfter time.Duration

	// lastShrink is when a target last lost replicas in this move; zero if none has.
	lastShrink time.Time
	// missing is how many of the needed replicas count as unavailable, before replicas are given back.
	missing int32
}

// newStepState adapts the stored states to what is wanted and removed now.
func newStepState(in Input) *stepState {
	s := &stepState{Input: in, transitions: make([]Transition, len(in.Targets))}
	for i, r := range in.Targets {
		m := Transition{Cluster: r.Cluster, State: r.State, Requested: r.Requested, Fallback: r.Fallback, Returned: r.Returned, Since: r.Since}
		if m.Since.After(s.Now) { // another hub's clock was ahead: the time runs again, once
			m.Since = s.Now
		}
		s.adaptState(r, &m)
		if s.BreakBeforeMake || !s.Divided || m.State == None || m.State == Removing || m.State == Lost || r.Desired >= m.Fallback {
			m.Fallback = 0
		}
		m.Returned = s.isReturned(r, m)
		if m.Fallback > m.Requested && m.Since.After(s.lastShrink) {
			s.lastShrink = m.Since
		}
		s.transitions[i] = m
	}
	return s
}

// adaptState adapts the stored state of a cluster.
func (s *stepState) adaptState(r Target, m *Transition) {
	switch {
	case (r.State == Removing || r.Ordered) && !r.Removed:
		s.adaptOrdered(r, m)
	case r.Removed, r.State == None:
		m.State, m.Requested = None, 0
		if r.Wanted {
			m.State = Pending
		}
	case r.State == Pending && !r.Wanted:
		m.State, m.Requested = None, 0
	case !r.Wanted && r.Lost && s.anyWanted():
		m.State = Lost
	case !r.Wanted:
		m.State = Draining
	case r.State == Draining, r.State == Lost:
		m.State = Active
	}
}

// adaptOrdered adapts the state of a cluster that has the order to remove. What breaks first does not wait for one that is
// lost: others may start what it was to stop. Its order lasts until it returns.
func (s *stepState) adaptOrdered(r Target, m *Transition) {
	switch {
	case r.Wanted: // the order is withdrawn
		m.State, m.Requested = Active, r.Requested
	case r.Lost && s.anyWanted() && (s.BreakBeforeMake || r.State == Lost):
		m.State, m.Requested = Lost, 0
	default:
		m.State, m.Requested = Removing, 0
	}
}

// isReturned tells whether a cluster that was lost reports again. One that is to have the object is like any other one
// when it has reported for long enough.
func (s *stepState) isReturned(r Target, m Transition) bool {
	switch {
	case m.State == Active && r.State == Lost:
		return r.Reachable
	case m.State == Active:
		return r.Returned && r.Until.Before(m.Since.Add(s.Stable))
	case m.State == Draining:
		return r.Returned || r.State == Lost
	}
	return false
}

func (s *stepState) anyWanted() bool {
	for _, r := range s.Targets {
		if r.Wanted {
			return true
		}
	}
	return false
}

// removeAll orders the removal in all clusters, because none is wanted.
func (s *stepState) removeAll() {
	for i := range s.transitions {
		if state := s.transitions[i].State; state == Draining || state == Active {
			s.transitions[i].State, s.transitions[i].Requested = Removing, 0
		}
	}
}

// makeBeforeBreak scales up, then down what is covered, then orders removals.
func (s *stepState) makeBeforeBreak() {
	if !s.Divided {
		s.activatePending()
		ready := s.replacementsReady()
		s.withdrawTraffic(ready)
		s.removeDrained(ready)
		return
	}
	s.markFallbacks()
	s.rollBack()
	s.grow()
	s.withdrawTraffic(s.isReplaced())
	s.shrink()
	s.removeDrained(true)
}

// breakBeforeMake scales down and orders removals, and scales up only when these are carried out.
func (s *stepState) breakBeforeMake() {
	receiver := s.unreachableReceiver() // without it, the object would run in no cluster
	busy := -1
	for i, r := range s.Targets {
		m := &s.transitions[i]
		runs := m.State == Active || m.State == Draining
		if runs && s.takesOrders(i) && (receiver < 0 || s.proceeds(i)) {
			m.Requested = min(m.Requested, r.Desired)
		}
		// A cluster that has not reported may run more than it has reported.
		more := m.Requested > r.Desired || m.Requested < r.Requested || !r.ReportCurrent || r.Total > m.Requested
		if m.State == Removing || m.State == Draining || s.Divided && m.State == Active && more {
			busy = i
		}
	}
	if receiver >= 0 {
		s.blockUnreachable(receiver, "the object stays in its present clusters")
	}
	s.removeDrained(receiver < 0)
	if busy >= 0 {
		s.blockBusy(busy)
		return
	}
	if s.Divided {
		s.grow()
		return
	}
	s.activatePending()
}

// unreachableReceiver returns a cluster that is to get the object from another one and is unreachable; -1 for none.
func (s *stepState) unreachableReceiver() int {
	leaves := false
	for i, m := range s.transitions {
		leaves = leaves || m.State == Draining && !s.proceeds(i)
	}
	for i, r := range s.Targets {
		if leaves && r.Wanted && s.transitions[i].State == Pending && (r.NotInInventory || !r.Reachable) {
			return i
		}
	}
	return -1
}

// blockBusy sets what a move that breaks first waits for: a cluster has to stop replicas.
func (s *stepState) blockBusy(i int) {
	switch r := s.Targets[i]; {
	case !s.hasUnmetDemand():
	case r.NotInInventory || !r.Reachable:
		s.blockUnreachable(i, "it must stop its replicas before another cluster starts them")
	case s.transitions[i].State == Active && !r.ReportCurrent:
		s.blockf(NotReported, r.Cluster, "%s has not reported that it runs no more than the requested replicas: none may run in two clusters at a time", r.Cluster)
	default:
		s.blockf(MustStop, r.Cluster, "%s must stop its replicas first: no replica may run in two clusters at a time", r.Cluster)
	}
}

// hasUnmetDemand tells whether a cluster is to get the object or more replicas.
func (s *stepState) hasUnmetDemand() bool {
	for i, r := range s.Targets {
		if r.Wanted && (s.transitions[i].State == Pending || s.Divided && s.transitions[i].Requested < r.Desired) {
			return true
		}
	}
	return false
}

// activatePending activates all pending clusters.
func (s *stepState) activatePending() {
	if s.waitsForPolicy() {
		return
	}
	for i := range s.transitions {
		if s.transitions[i].State == Pending && !s.awaits(i) {
			s.transitions[i].State = Active
		}
	}
}

// awaits tells whether something must come to a pending cluster first, and sets that the move waits for it.
func (s *stepState) awaits(i int) bool {
	r := s.Targets[i]
	if r.Awaits != "" {
		s.blockf(NotPrepared, r.Cluster, "%s: %s", r.Cluster, r.Awaits)
	}
	return r.Awaits != ""
}

// waitsForPolicy tells whether pending clusters wait for a policy, because without it the object may have to
// be gone elsewhere first.
func (s *stepState) waitsForPolicy() bool {
	if !s.NoPolicy {
		return false
	}
	for _, m := range s.transitions {
		if m.State == Draining || m.State == Removing {
			return true
		}
	}
	return false
}

// removeDrained orders the removal in draining clusters that report, have no replicas and have settled. Unless the
// replacements are ready, only clusters whose deadline has passed get the order.
func (s *stepState) removeDrained(ready bool) {
	for i, r := range s.Targets {
		m := &s.transitions[i]
		switch {
		case m.State != Draining || r.Lost || !ready && !s.proceeds(i):
		case !s.takesOrders(i): // an order could not be withdrawn before the cluster reads it
			s.blockUnreachable(i, "the object stays there")
		case s.isNewlyDrained(i): // this must be stored first, so that Since is correct
			s.requeueAfter = shortest(s.requeueAfter, s.Settle)
		case s.Divided && !s.proceeds(i) && s.stillNeeded(i):
		case !s.Divided && !s.BreakBeforeMake && s.holdsTraffic(i): // what breaks first stops without replacements
		case s.remaining(m.Since, s.Settle) == 0:
			m.State, m.Requested = Removing, 0
		}
	}
}

// isNewlyDrained tells whether this step has drained a cluster that has to settle.
func (s *stepState) isNewlyDrained(i int) bool {
	r := s.Targets[i]
	isNew := r.State != Draining || s.transitions[i].Requested != r.Requested
	return isNew && (s.Settle > 0 || s.Divided && r.Requested > 0)
}

// stillNeeded tells whether a draining cluster has replicas, or may get some again, and sets what the move waits for.
func (s *stepState) stillNeeded(i int) bool {
	r, m, need := s.Targets[i], s.transitions[i], s.need()
	switch {
	case m.Requested > 0 || r.Requested > 0: // it waits for what shrink waits for
	case !r.ReportCurrent:
		s.blockf(NotReported, r.Cluster, "%s has not reported that it runs 0 replicas, as requested", r.Cluster)
	case r.Total > 0:
		s.blockf(StillRunning, r.Cluster, "%s still runs replicas: %d", r.Cluster, r.Total)
	case m.Fallback > 0 && s.totalAvailable() < need:
		reason, cluster := s.whyFewAvailable(i)
		s.blockf(reason, cluster, "the object stays in %s until enough replicas are available elsewhere: %d are available, and %d are needed%s",
			r.Cluster, s.totalAvailable(), need, cause(reason, cluster))
	default:
		return false
	}
	return true
}

// replacementsReady tells whether the object has been ready in all wanted clusters for long enough.
func (s *stepState) replacementsReady() bool {
	if s.isDeadlinePassed() {
		return true
	}
	for i, r := range s.Targets {
		reported := r.ReportCurrent && (r.State == Active || r.State == Draining) && s.reportedSinceReturn(i)
		if !r.Wanted || r.Reachable && reported && r.Ready && r.StableReady {
			continue
		}
		if !s.anyDraining() {
			return false
		}
		switch state := s.transitions[i].State; {
		case r.NotInInventory || !r.Reachable:
			s.blockUnreachable(i, "whether the object is ready there is unknown")
		case state == Pending:
			s.blockf(PolicyMissing, r.Cluster, "%s gets the object when a policy selects it again", r.Cluster)
		case !reported:
			s.blockf(NotReported, r.Cluster, "%s has not reported on the object as it was last sent", r.Cluster)
		case !r.Ready:
			s.blockf(NotReady, r.Cluster, "the object is not ready in %s", r.Cluster)
		default:
			s.blockf(NotReady, r.Cluster, "the object has not been ready in %s for %s", r.Cluster, s.Stable)
		}
		return false
	}
	return true
}

// anyDraining tells whether a cluster is to lose the object.
func (s *stepState) anyDraining() bool {
	for _, m := range s.transitions {
		if m.State == Draining {
			return true
		}
	}
	return false
}

// takesOrders tells whether a cluster may lose replicas or the object: the hub must know what becomes of the order,
// unless the deadline has passed.
func (s *stepState) takesOrders(i int) bool {
	r := s.Targets[i]
	return !r.Lost && !r.NotInInventory && (r.Reachable || s.proceeds(i))
}

// proceeds tells whether a cluster loses replicas and the object although no replacement is available.
func (s *stepState) proceeds(i int) bool {
	return s.Targets[i].Proceed || s.isDeadlinePassed()
}

// isDeadlinePassed tells whether the deadline has passed and the move proceeds then.
func (s *stepState) isDeadlinePassed() bool {
	return s.ProceedAtDeadline && s.Deadline > 0 && s.remaining(s.DesiredSince, s.Deadline) == 0
}

// remaining returns how much is left of a duration from since, and requeues the step at its end. A time in the
// future, from a clock that was ahead, does not make it longer.
func (s *stepState) remaining(since time.Time, of time.Duration) time.Duration {
	left := min(of, max(0, of-s.Now.Sub(since)))
	s.requeueAfter = shortest(s.requeueAfter, left)
	return left
}

// shortest returns the shorter one of two durations; 0 is none.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// blockf sets the reason why the move waits, unless there is one.
func (s *stepState) blockf(reason BlockedReason, cluster, format string, args ...any) {
	if s.blocked.Reason == "" {
		s.blocked = Blocked{Reason: reason, Cluster: cluster, Message: fmt.Sprintf(format, args...)}
	}
}

// blockUnreachable sets that the move waits for a cluster that does not report.
func (s *stepState) blockUnreachable(i int, consequence string) {
	r := s.Targets[i]
	if r.NotInInventory {
		s.blockf(NotInInventory, r.Cluster, "%s is not in the inventory: %s", r.Cluster, consequence)
		return
	}
	s.blockf(Unreachable, r.Cluster, "%s cannot be reached: %s", r.Cluster, consequence)
}

// result returns the output, after a comparison with the stored state.
func (s *stepState) result() Output {
	out := Output{Transitions: s.transitions, RolledBack: s.rolledBack, Blocked: s.blocked, RequeueAfter: s.requeueAfter, Done: true}
	ended := true // but for lost clusters
	for i := range s.transitions {
		m, r := &s.transitions[i], s.Targets[i]
		if !s.Divided {
			m.Requested = 0
		}
		// Of a cluster that has the order to remove, Requested is not what is stored.
		if m.State != r.State || m.Requested != r.Requested && r.State != Removing {
			m.Since = s.Now
		}
		settled := m.State == None || m.State == Active && m.Requested == desiredReplicas(s.Divided, r)
		out.Done, ended = out.Done && settled, ended && (settled || r.Lost)
	}
	for i := range s.transitions {
		m := &s.transitions[i]
		if ended || m.State == None || m.State == Removing {
			m.Fallback = 0
		}
		m.Returned = m.Returned && m.State != Removing
	}
	if !out.Done && s.changesWithTime() {
		out.RequeueAfter = shortest(out.RequeueAfter, recheck)
	}
	return out
}

func desiredReplicas(divided bool, r Target) int32 {
	if divided {
		return r.Desired
	}
	return 0
}
