// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

const (
	// firstRefusalRetry and longestRefusalRetry are the first and the longest time for which a cluster gets no more
	// replicas of an object that it has refused.
	firstRefusalRetry, longestRefusalRetry = 5 * time.Minute, time.Hour
	// maxRefusals bounds the refusals that an Assignment has.
	maxRefusals = 32
	// roomRetryInterval is when to look for room again: agents report small changes within a minute, and what the hub
	// assumes ends without a report.
	roomRetryInterval = 75 * time.Second
)

// AwaitsRoom reports whether the object is decided about again when a cluster has room.
func (d *Decision) AwaitsRoom() bool {
	return d.ShortfallReason == v1alpha1.ReasonUnschedulable || d.ShortfallReason == v1alpha1.ReasonWaitingForCluster
}

// roomRetry returns when to decide again about an object that awaits room, where clusters report it; 0: when something
// changes.
func roomRetry(s *scope.Scope, d Decision) time.Duration {
	if !d.AwaitsRoom() {
		return 0
	}
	for _, c := range s.Clusters {
		if c.Status.Room != nil {
			return roomRetryInterval
		}
	}
	for _, refused := range d.Refusals {
		if left := refused.RetryTime.Sub(s.Now); left > 0 {
			return left
		}
	}
	return 0
}

// refusals returns the clusters that did not run all replicas that the hub requested: those that are stored, and what
// the reports say now. While replicas that started meanwhile are about to leave, it gives them back in the input.
// Only replicas that clusters share can go elsewhere: an object that runs once, has volumes in the cluster or is
// whole in each cluster stays.
func refusals(s *scope.Scope, in *policy.PlanInput, a *v1alpha1.Assignment, p *policy.EffectivePolicy) []v1alpha1.Refusal {
	if in.Replicas == nil || p.Spec.Replicas.Mode != v1alpha1.ReplicasDivide || len(in.Started) > 0 || isRebalanced(s, a) {
		return nil
	}
	all := slices.Clone(a.Spec.Decision.Refusals)
	all = slices.DeleteFunc(all, func(r v1alpha1.Refusal) bool {
		n, assigned := in.Assigned[string(r.Cluster)]
		return hasEnded(r, s.Now) && (n > 0 || !assigned)
	})
	for _, t := range a.Spec.Targets {
		running, refused, known := servedReplicas(s, t)
		if !known || in.VolumeClaims[string(t.Cluster)] != "" {
			continue
		}
		i := slices.IndexFunc(all, func(r v1alpha1.Refusal) bool { return r.Cluster == t.Cluster })
		if i < 0 && refused > 0 && len(all) < maxRefusals {
			i, all = len(all), append(all, v1alpha1.Refusal{Cluster: t.Cluster})
		}
		if i < 0 {
			continue
		}
		all[i] = nextRefusal(all[i], running, refused, s.Now)
		if available := s.Reports[string(t.Cluster)].Counts.Available; available > all[i].Replicas {
			all[i].Replicas = available
			giveBack(in, string(t.Cluster), int64(available))
		}
	}
	slices.SortFunc(all, func(x, y v1alpha1.Refusal) int { return cmp.Compare(x.Cluster, y.Cluster) })
	in.Refused = map[string]bool{}
	for _, r := range all {
		in.Refused[string(r.Cluster)] = true
	}
	return all
}

// hasEnded reports whether a refusal is to be forgotten: no other has followed for as long as it lasted. It is not
// while the cluster has the object without replicas, which stays.
func hasEnded(r v1alpha1.Refusal, now time.Time) bool {
	return !now.Before(r.RetryTime.Add(refusalRetry(r.Count)))
}

// servedReplicas returns how many of the replicas that the hub requests of a target the cluster runs or starts, and how
// many it has refused; false while its report is about something else.
func servedReplicas(s *scope.Scope, t v1alpha1.Target) (running, refused int32, known bool) {
	name := string(t.Cluster)
	c, w, r := s.Clusters[name], s.Works[name], s.Reports[name]
	if t.State != v1alpha1.TargetActive || t.RequestedReplicas == nil || c == nil || !clusters.IsReachable(c) || w == nil || !r.Current || !requests(w, *t.RequestedReplicas) {
		return 0, 0, false
	}
	if r.Replicas != nil && *r.Replicas != *t.RequestedReplicas { // another client scales it there
		return 0, 0, false
	}
	if r.Refused != nil {
		refused = min(max(0, r.Refused.Replicas), *t.RequestedReplicas)
	}
	return *t.RequestedReplicas - refused, refused, true
}

// nextRefusal returns the refusal of a cluster after its report.
func nextRefusal(r v1alpha1.Refusal, running, refused int32, now time.Time) v1alpha1.Refusal {
	switch {
	case refused == 0:
	case now.Before(r.RetryTime.Time):
		r.Replicas = min(r.Replicas, running)
	default:
		r.Count++
		r.Replicas, r.RetryTime = running, metav1.NewMicroTime(now.Add(refusalRetry(r.Count)))
	}
	return r
}

// refusalRetry returns for how long a cluster gets no more replicas after so many refusals in a row.
func refusalRetry(count int32) time.Duration {
	after := firstRefusalRetry
	for ; count > 1 && after < longestRefusalRetry; count-- {
		after *= 2
	}
	return min(after, longestRefusalRetry)
}

// giveBack assigns replicas to a cluster again that are available there now, and were to leave. Those that are to replace them
// elsewhere, and do not run yet, are no longer assigned.
func giveBack(in *policy.PlanInput, cluster string, available int64) {
	more := available - in.Assigned[cluster]
	for _, name := range slices.Sorted(maps.Keys(in.Assigned)) {
		if n := min(more, max(0, in.Assigned[name]-in.Running[name])); name != cluster && n > 0 {
			in.Assigned[name] -= n
			in.Assigned[cluster] += n
			more -= n
		}
	}
}

// ReservationOf returns what the object uses of each cluster by its next targets. An object that is not divided uses
// what it had in a cluster that it leaves until it has left.
func ReservationOf(s *scope.Scope, next *v1alpha1.Assignment) limits.Reservation {
	r := limits.ReservationOf(next)
	r.Existing = existingReplicas(s)
	for _, t := range next.Spec.Targets {
		r.Replicas[string(t.Cluster)] = max(r.Replicas[string(t.Cluster)], occupiedReplicas(s, t))
	}
	return r
}

// existingReplicas returns how many replicas of the object exist in each cluster that reports on it.
func existingReplicas(s *scope.Scope) map[string]int64 {
	existing := map[string]int64{}
	for name, r := range s.Reports {
		switch {
		case !r.Read:
		case s.Key.IsPod():
			existing[name] = 1
		default:
			existing[name] = int64(r.Counts.Total)
		}
	}
	return existing
}

// occupiedReplicas returns how many replicas a target has that leaves. Where the replicas are not divided only the
// Work tells that.
func occupiedReplicas(s *scope.Scope, t v1alpha1.Target) int64 {
	w := s.Works[string(t.Cluster)]
	if t.RequestedReplicas != nil || w == nil || scope.IsRemoved(w) ||
		t.State == v1alpha1.TargetPending || t.State == v1alpha1.TargetActive {
		return deref(t.RequestedReplicas)
	}
	if s.Key.IsPod() {
		return 1
	}
	n, _ := scope.RequestedReplicas(w)
	return int64(n)
}
