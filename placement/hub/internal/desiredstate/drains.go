// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// waitForDrains marks the draining clusters which the object must not leave yet. Retry is when the deadline of a drain
// changes what a move may do; 0: never.
func waitForDrains(
	s *scope.Scope, in *policy.PlanInput, current *v1alpha1.Assignment, drains *limits.Drains,
) (mistake *policy.Error, retry time.Duration) {
	for i := range in.Clusters {
		c := s.Clusters[in.Clusters[i].Name]
		if _, assigned := in.Assigned[c.Name]; !assigned || !limits.IsDraining(c) {
			continue
		}
		priority, invalid := drainPriority(s)
		stored, _ := limits.TargetOf(current.Spec.Targets, c.Name)
		may, isNew := drains.MayLeave(c, s.Key, priority, stored, s.Now)
		if in.Clusters[i].DrainLimitReached = !may; isNew {
			mistake = invalid
		}
	}
	return mistake, drainDeadline(s, current)
}

// drainProceeds reports whether moves out of a cluster remove replicas whose replacement is not available, because the
// deadline of its drain has passed. Left is when that will be; 0: never, or it is.
func drainProceeds(c *v1alpha1.Cluster, now time.Time) (proceeds bool, left time.Duration) {
	if !limits.IsDraining(c) || c.Spec.Drain.OnDeadline != v1alpha1.DeadlineProceed || c.Spec.Drain.Deadline == nil {
		return false, 0
	}
	left = max(0, c.Spec.Drain.Deadline.Sub(now))
	return left == 0, left
}

// drainDeadline returns when the first drain of the object's clusters begins to proceed; 0: none will.
func drainDeadline(s *scope.Scope, current *v1alpha1.Assignment) (first time.Duration) {
	for _, t := range current.Spec.Targets {
		_, left := drainProceeds(s.Clusters[string(t.Cluster)], s.Now)
		first = scope.Sooner(first, left)
	}
	return first
}

// drainPriority returns the priority of the object in a drain: that of its annotation, else that of its Pods.
func drainPriority(s *scope.Scope) (int64, *policy.Error) {
	text, annotated := s.Annotations()[v1alpha1.DrainPriorityAnnotation]
	if !annotated {
		return int64(s.PodPriority), nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, &policy.Error{
			Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.DrainPriorityAnnotation + "]",
			Message: fmt.Sprintf("must be an integer of 32 bits, such as \"100\": got %q, which counts as 0", text),
		}
	}
	return n, nil
}

// startDrains lets the object leave each draining cluster that the decision takes it from. Where the plan takes it
// from a cluster that it must not leave yet, a user has ordered that, and it needs no slot.
func startDrains(s *scope.Scope, in policy.PlanInput, d Decision, current *v1alpha1.Assignment, drains *limits.Drains) error {
	limited := map[string]bool{}
	for _, c := range in.Clusters {
		limited[c.Name] = c.DrainLimitReached
	}
	for _, name := range slices.Sorted(maps.Keys(in.Assigned)) {
		c := s.Clusters[name]
		stays := d.includes(name) && d.Replicas[name] >= in.Assigned[name]
		switch {
		case !limits.IsDraining(c), stays && (limited[name] || s.RequiredIn[name]):
		case stays:
			t, _ := limits.TargetOf(current.Spec.Targets, name)
			drains.Stays(c, s.Key, whyStays(in, d, name), t, s.Now)
		case !drains.Start(c, s.Key, limited[name], s.Now):
			return limits.ErrDrainLimit
		}
	}
	return nil
}

// whyStays returns why a plan that may take the object from a draining cluster does not.
func whyStays(in policy.PlanInput, d Decision, cluster string) limits.Stay {
	switch {
	case in.VolumeClaims[cluster] != "":
		return limits.HasVolumes
	case d.ShortfallReason == v1alpha1.ReasonRunsOnce:
		return limits.RunsOnce
	case d.Policy.AllowsOnly(in, cluster):
		return limits.Pinned
	}
	return limits.NoPlace
}

// staysInAll records that the object stays in all draining clusters until a user changes something.
func staysInAll(s *scope.Scope, current *v1alpha1.Assignment, drains *limits.Drains, d Decision) {
	why := limits.AwaitsUser
	switch {
	case v1alpha1.IsVolumeClaim(s.Key.GroupKind), d.Mistake != nil && d.Mistake.Reason == v1alpha1.ReasonVolumesRefused:
		why = limits.HasVolumes
	case d.Mistake != nil && d.Mistake.Reason == v1alpha1.ReasonRunsOnce:
		why = limits.RunsOnce
	}
	for _, t := range current.Spec.Targets {
		if c := s.Clusters[string(t.Cluster)]; limits.IsDraining(c) {
			drains.Stays(c, s.Key, why, t, s.Now)
		}
	}
}
