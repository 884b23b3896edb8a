// SPDX-License-Identifier: Apache-2.0

package migration

// withdrawTraffic decides of which clusters the other clusters get no endpoints any more: of those that lose the
// object, from the time on when enough replicas are available in the wanted clusters alone. A withdrawal lasts until
// replicas fail there, since after each step the reports must last anew, and while the removal is ordered: the Pods end.
func (s *stepState) withdrawTraffic(replaced bool) {
	for i, r := range s.Targets {
		m := &s.transitions[i]
		leaves := !r.Wanted && (m.State == Draining || m.State == Removing)
		m.Withdraw = r.Serves && leaves && !r.Lost && (replaced && s.hasReplacements(i) || r.Withdrawn && (m.State == Removing || !s.replacementsFail()))
	}
}

// hasReplacements tells whether each of the other clusters has endpoints of enough replicas that stay.
func (s *stepState) hasReplacements(i int) bool {
	if s.Divided {
		return s.Targets[i].Replacements >= s.need()
	}
	return s.Targets[i].Replacements > 0
}

// isReplaced tells whether enough replicas are available in the wanted clusters alone.
func (s *stepState) isReplaced() bool {
	return s.sumOfWanted(func(i int) int32 { return min(s.availableIn(i), s.transitions[i].Requested) }) >= s.need()
}

// replacementsFail tells whether too few replicas may be available in the wanted clusters alone. Those of a cluster that
// will lose them do not count: other clusters send no traffic to them.
func (s *stepState) replacementsFail() bool {
	gone := func(i int) bool { return s.Targets[i].Lost || s.Targets[i].NotInInventory }
	if s.Divided {
		return s.need() > s.sumOfWanted(func(i int) int32 {
			r, requested := s.Targets[i], s.transitions[i].Requested
			if gone(i) {
				return 0
			}
			return min(s.atMost(i)+max(0, requested-r.Requested), requested) // what this step adds has not failed
		})
	}
	for i, r := range s.Targets {
		if r.Wanted && (gone(i) || r.Reachable && r.ReportCurrent && !r.Ready) {
			return true
		}
	}
	return false
}

// holdsTraffic tells whether a cluster that loses the object keeps its replicas, because other clusters may still send
// traffic to them, and sets what the move waits for. It does not while the surge is too small for enough replicas in
// the wanted clusters: then the move goes on step by step, and Pods that end gracefully answer until they are gone.
func (s *stepState) holdsTraffic(i int) bool {
	r, m := s.Targets[i], s.transitions[i]
	requested := s.sumOfWanted(func(j int) int32 { return s.transitions[j].Requested })
	switch {
	case !r.Serves || r.Wanted || s.proceeds(i) || s.Divided && (s.need() == 0 || requested < s.need()):
		return false
	case !m.Withdraw && !s.hasReplacements(i):
		s.blockf(NotWithdrawn, r.ReplacementsIn, "the replicas stay in %s until %s has endpoints of enough replicas in the clusters that keep the object: it has %d",
			r.Cluster, r.ReplacementsIn, r.Replacements)
		return true
	case !m.Withdraw:
		reason, cluster := s.whyFewAvailable(i)
		s.blockf(reason, cluster, "the replicas stay in %s, to which other clusters send traffic, until the clusters that keep the object have enough: %d must be available there%s",
			r.Cluster, s.need(), cause(reason, cluster))
		return true
	case !r.Withdrawn: // this must be stored first
		s.blockf(NotWithdrawn, r.Cluster, "the replicas stay in %s until its endpoints are withdrawn from the other clusters", r.Cluster)
		return true
	case r.TrafficIn != "":
		s.blockf(NotWithdrawn, r.TrafficIn, "the replicas stay in %s until %s has acknowledged that it sends no traffic to them: %s", r.Cluster, r.TrafficIn, r.TrafficCause)
		return true
	}
	return false
}

// sumOfWanted returns the sum of a number of each wanted cluster.
func (s *stepState) sumOfWanted(number func(int) int32) (sum int32) {
	for i, r := range s.Targets {
		if r.Wanted {
			sum += number(i)
		}
	}
	return sum
}
