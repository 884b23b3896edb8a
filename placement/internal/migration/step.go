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
	blocked      Blocked
	requeueAfter time.Duration
}

// newStepState adapts the stored states to what is wanted and removed now.
func newStepState(in Input) *stepState {
	s := &stepState{Input: in, transitions: make([]Transition, len(in.Targets))}
	for i, r := range in.Targets {
		m := Transition{Cluster: r.Cluster, State: r.State, Requested: r.Requested, Since: r.Since}
		switch {
		case r.State == Removing && !r.Removed:
			if m.Requested = 0; r.Wanted { // the order is withdrawn
				m.State = Active
			}
		case r.Removed, r.State == None:
			m.State, m.Requested = None, 0
			if r.Wanted {
				m.State = Pending
			}
		case r.State == Pending && !r.Wanted:
			m.State, m.Requested = None, 0
		case !r.Wanted:
			m.State = Draining
		case r.State == Draining:
			m.State = Active
		}
		s.transitions[i] = m
	}
	return s
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
		if s.transitions[i].State == Draining || s.transitions[i].State == Active {
			s.transitions[i].State, s.transitions[i].Requested = Removing, 0
		}
	}
}

// makeBeforeBreak scales up, then down what is covered, then orders removals.
func (s *stepState) makeBeforeBreak() {
	if !s.Divided {
		s.activatePending()
		if s.replacementsReady() {
			s.removeDrained()
		}
		return
	}
	s.grow()
	s.shrink()
	s.removeDrained()
}

// breakBeforeMake scales down and orders removals, and scales up only when these are carried out.
func (s *stepState) breakBeforeMake() {
	if cluster := s.unreachablePending(); cluster != "" && s.anyDraining() && !s.isDeadlinePassed() {
		s.blockf(Unreachable, cluster, "%s cannot be reached: the object stays in its present clusters", cluster)
		return
	}
	busy := ""
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if m.State == Active || m.State == Draining {
			m.Requested = min(m.Requested, r.Desired)
		}
		fewer := m.Requested < r.Requested || !r.ReportCurrent || r.Total > m.Requested
		if m.State == Removing || m.State == Draining || s.Divided && m.State == Active && r.Desired < r.Total && fewer {
			busy = r.Cluster
		}
	}
	s.removeDrained()
	if busy != "" {
		if s.hasUnmetDemand() {
			s.blockf(MustStop, busy, "%s must stop its replicas first: no replica may run in two clusters at a time", busy)
		}
		return
	}
	if s.Divided {
		s.grow()
		return
	}
	s.activatePending()
}

// unreachablePending returns a cluster that is to get the object and is unreachable; "" for none.
func (s *stepState) unreachablePending() string {
	for i, r := range s.Targets {
		if r.Wanted && s.transitions[i].State == Pending && (r.NotInInventory || !r.Reachable) {
			return r.Cluster
		}
	}
	return ""
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
		if s.transitions[i].State == Pending {
			s.transitions[i].State = Active
		}
	}
}

// grow requests more replicas where fewer than desired are requested, within the surge.
func (s *stepState) grow() {
	room := s.totalDesired() + s.effectiveSurge()
	for _, m := range s.transitions {
		room -= m.Requested
	}
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if !r.Wanted || m.State == Removing || m.State == Pending && s.waitsForPolicy() {
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

// shrink requests fewer replicas where more than desired are requested, as far as enough stay available.
func (s *stepState) shrink() {
	need := max(0, s.totalDesired()-s.MaxUnavailable)
	if s.isDeadlinePassed() {
		need = 0
	}
	spare := s.totalAvailable() - need
	for i, r := range s.Targets {
		m := &s.transitions[i]
		over := m.Requested - r.Desired
		if over <= 0 || m.State == Removing {
			continue
		}
		if !r.Reachable && need > 0 {
			s.blockf(Unreachable, r.Cluster, "%s cannot be reached: its %d replicas stay as they are", r.Cluster, m.Requested)
			continue
		}
		counted := s.availableIn(i)
		idle := m.Requested - counted // requested and not available: their removal changes nothing
		if spare < 0 && !s.isScaleDown() {
			idle = 0
		}
		less := min(over, idle+max(0, spare))
		if s.isOnlyTarget(i) { // one cluster scales down as a Deployment does
			less = over
		}
		spare -= max(0, less-idle)
		m.Requested -= less
		if less < over {
			s.blockf(NotAvailable, r.Cluster, "%d replicas stay in %s until more are available: %d of %d are", over-less, r.Cluster, s.totalAvailable(), need)
		}
	}
}

// isScaleDown tells whether the step only scales down an object that does not move and has no available
// replicas.
func (s *stepState) isScaleDown() bool {
	for i, r := range s.Targets {
		if !r.Wanted || !r.ReportCurrent || s.transitions[i].Requested < r.Desired {
			return false
		}
	}
	return s.totalAvailable() == 0
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

// availableIn returns how many available replicas of a cluster count: none while its report belongs to an
// earlier request, because fewer may have been requested since.
func (s *stepState) availableIn(i int) int32 {
	r := s.Targets[i]
	if !r.Reachable || !r.ReportCurrent || s.transitions[i].State == Removing {
		return 0
	}
	return max(0, min(r.Available, r.Requested))
}

// totalAvailable returns the sum of available replicas that count and stay requested.
func (s *stepState) totalAvailable() (sum int32) {
	for i := range s.Targets {
		sum += min(s.availableIn(i), s.transitions[i].Requested)
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

// removeDrained orders the removal in draining clusters that report, have no replicas and have settled.
func (s *stepState) removeDrained() {
	for i, r := range s.Targets {
		m := &s.transitions[i]
		if m.State != Draining || r.Wanted {
			continue
		}
		if r.NotInInventory {
			s.blockf(NotInInventory, r.Cluster, "%s is not in the inventory: the object stays there", r.Cluster)
			continue
		}
		if !r.Reachable && !s.isDeadlinePassed() { // an order could not be withdrawn before the cluster reads it
			s.blockf(Unreachable, r.Cluster, "%s cannot be reached: the object stays there", r.Cluster)
			continue
		}
		if r.State != Draining || m.Requested != r.Requested { // the state must be stored first, so that Since is correct
			if s.Settle > 0 || s.Divided && r.Requested > 0 {
				s.requeueAfter = shortest(s.requeueAfter, s.Settle)
				continue
			}
		}
		if s.Divided && !s.isDeadlinePassed() && (m.Requested > 0 || r.Requested > 0 || !r.ReportCurrent || r.Total > 0) {
			if m.Requested == 0 {
				s.blockf(StillRunning, r.Cluster, "%d replicas are still in %s", r.Total, r.Cluster)
			}
			continue
		}
		if s.remaining(m.Since, s.Settle) == 0 {
			m.State, m.Requested = Removing, 0
		}
	}
}

// replacementsReady tells whether the object is ready in all wanted clusters.
func (s *stepState) replacementsReady() bool {
	if s.isDeadlinePassed() {
		return true
	}
	for i, r := range s.Targets {
		if r.Wanted && (!r.Ready || !r.ReportCurrent || !r.Reachable || r.State != Active) {
			if s.anyDraining() {
				s.blockf(NotReady, r.Cluster, "%s is not ready (%s)", r.Cluster, s.transitions[i].State)
			}
			return false
		}
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

// isDeadlinePassed tells whether the deadline has passed and the move proceeds then.
func (s *stepState) isDeadlinePassed() bool {
	return s.ProceedAtDeadline && s.Deadline > 0 && s.remaining(s.DesiredSince, s.Deadline) == 0
}

// remaining returns how much is left of a duration from since, and requeues the step at its end.
func (s *stepState) remaining(since time.Time, of time.Duration) time.Duration {
	left := max(0, of-s.Now.Sub(since))
	if left > 0 && (s.requeueAfter == 0 || left < s.requeueAfter) {
		s.requeueAfter = left
	}
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

// result returns the output, after a comparison with the stored state.
func (s *stepState) result() Output {
	out := Output{Transitions: s.transitions, Blocked: s.blocked, RequeueAfter: s.requeueAfter, Done: true}
	for i := range s.transitions {
		m, r := &s.transitions[i], s.Targets[i]
		if !s.Divided {
			m.Requested = 0
		}
		if m.State != r.State || m.Requested != r.Requested {
			m.Since = s.Now
		}
		settled := m.State == None || m.State == Active && m.Requested == desiredReplicas(s.Divided, r)
		out.Done = out.Done && settled
	}
	return out
}

func desiredReplicas(divided bool, r Target) int32 {
	if divided {
		return r.Desired
	}
	return 0
}
