// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"reflect"
	"time"
)

// deadlinePassed tells whether the move proceeds without replacements.
func deadlinePassed(in Input) bool {
	return in.ProceedAtDeadline && in.Deadline > 0 && in.Now.Sub(in.DesiredSince) >= in.Deadline
}

func proceedsIn(in Input, i int) bool {
	return deadlinePassed(in) || in.Targets[i].Proceed
}

func desiredOf(in Input) (n int32) {
	for _, r := range in.Targets {
		n += r.Desired
	}
	return n
}

func needOf(in Input) int32 {
	if !in.Divided {
		return 1
	}
	return max(0, desiredOf(in)-in.MaxUnavailable)
}

// counted returns how many replicas of a cluster are available for certain.
func counted(in Input, r Target) int32 {
	if !r.Reachable || !r.ReportCurrent || r.Lost || r.State == Removing || r.State == Lost {
		return 0
	}
	if r.Returned && r.Until.Before(earlier(r.Since, in.Now).Add(in.Stable)) { // what it said before it was lost is no proof
		return 0
	}
	return min(r.Available, r.Requested)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func countedSum(in Input, targets []Target) (n int32) {
	for _, r := range targets {
		n += counted(in, r)
	}
	return n
}

// possible returns how many of the requested replicas may be available by the reports.
func possible(in Input, r Target) int32 {
	since := r.Since
	if since.After(in.Now) {
		since = in.Now
	}
	switch {
	case r.Lost || r.State == Removing && !r.Wanted:
		return 0
	case r.Until.Before(since.Add(in.Stable)):
		return r.Requested
	}
	return min(r.AtMost, r.Requested)
}

// isSingle tells whether one cluster alone has the object and is to have it.
func isSingle(in Input, out Output) bool {
	n := 0
	for i, m := range out.Transitions {
		if r := in.Targets[i]; m.Requested > 0 || r.Desired > 0 || r.Requested > 0 && r.State != Removing {
			n++
		}
	}
	return n <= 1
}

// isScaleDown tells whether the object only loses replicas, without a move.
func isScaleDown(in Input, out Output) bool {
	for i, r := range in.Targets {
		leaves := !r.Wanted && (r.State == Active || r.State == Draining) && r.Requested > 0 && !r.Lost
		if leaves || r.Desired > r.Requested || r.Fallback > r.Desired || out.Transitions[i].Fallback > 0 {
			return false
		}
	}
	return true
}

// violation checks a step of a divided object that makes before it breaks, by the reports alone.
func violation(in Input, out Output) string {
	if again := Step(in); !reflect.DeepEqual(out, again) {
		return fmt.Sprintf("L8: equal inputs give different outputs: %+v", again)
	}
	need, limit := needOf(in), max(1, desiredOf(in)/4, in.MaxUnavailable)
	var before, after, possibleSum, unproven, seen, back int32
	lastShrink := time.Time{}
	for _, r := range in.Targets {
		if r.Fallback > r.Requested && r.Fallback > r.Desired && r.State != Removing && r.Since.After(lastShrink) {
			lastShrink = r.Since
		}
	}
	if lastShrink.After(in.Now) {
		lastShrink = in.Now
	}
	fallback := false
	for i, r := range in.Targets {
		m := out.Transitions[i]
		back += max(0, min(m.Requested, m.Fallback)-max(r.Requested, r.Desired))
		if m.State == Lost && (!r.Lost || r.Wanted || m.Requested != r.Requested) {
			return "a target is lost that is not: " + r.Cluster
		}
		if m.Requested > max(r.Desired, r.Fallback, r.Requested) {
			return "L5: more than desired and than there was: " + r.Cluster
		}
		if r.Lost && r.State != Removing && m.State != Pending && (m.Requested < r.Requested || m.State == Removing) {
			return "a lost cluster gets an order: " + r.Cluster
		}
		possibleSum += possible(in, r)
		if proceedsIn(in, i) {
			continue
		}
		before += counted(in, r)
		after += min(counted(in, r), m.Requested)
		if r.Until.After(lastShrink) {
			seen += min(counted(in, r), m.Requested)
		}
		unavailable := int32(0)
		if r.Reachable && r.ReportCurrent && r.State != Removing {
			unavailable = r.Requested - possible(in, r)
		}
		if (r.State == Active || r.State == Draining) && !r.AllAtOnce {
			unproven += max(0, r.Requested-m.Requested-unavailable)
			fallback = fallback || r.Reachable && r.Fallback > r.Requested && r.Fallback > r.Desired
		}
		if m.Requested < r.Requested && !r.Reachable && r.State != Removing && need > 0 {
			return "an unreachable cluster gets fewer replicas: " + r.Cluster
		}
	}
	switch {
	case deadlinePassed(in) || isSingle(in, out):
	case after < min(need, before):
		return fmt.Sprintf("L1: %d of %d available ones stay, %d are needed", after, before, need)
	case unproven > limit && !isScaleDown(in, out):
		return fmt.Sprintf("L3: a step removes %d replicas, more than %d", unproven, limit)
	case unproven > 0 && seen < need:
		return fmt.Sprintf("L3: %d replicas go, before the others have reported after the last step: %d of %d", unproven, seen, need)
	case possibleSum < need && fallback && out.RolledBack == 0:
		return fmt.Sprintf("L4: %d may be available of %d, and nothing is given back", possibleSum, need)
	case out.RolledBack > 0 && possibleSum >= need:
		return fmt.Sprintf("L4: %d are given back, and %d may be available of %d", out.RolledBack, possibleSum, need)
	}
	return removalViolation(in, out)
}

// removalViolation checks the orders to remove.
func removalViolation(in Input, out Output) string {
	available := int32(0)
	for i, r := range in.Targets {
		available += min(counted(in, r), out.Transitions[i].Requested)
	}
	for i, r := range in.Targets {
		if out.Transitions[i].State != Removing || r.State == Removing {
			continue
		}
		switch {
		case r.Wanted || r.State != Draining && in.Settle > 0 || r.NotInInventory:
			return "the order to remove comes too early: " + r.Cluster
		case proceedsIn(in, i):
		case !r.Reachable:
			return "the order to remove could not be withdrawn: " + r.Cluster
		case in.Divided && (!r.ReportCurrent || r.Total > 0 || r.Requested > 0):
			return "replicas are removed with the object: " + r.Cluster
		case in.Divided && r.Fallback > 0 && available < needOf(in):
			return "the order to remove takes the fallback away: " + r.Cluster
		case !in.Divided && !allReady(in):
			return "the order to remove comes before the object is ready elsewhere: " + r.Cluster
		}
	}
	return ""
}

func allReady(in Input) bool {
	for _, r := range in.Targets {
		if r.Wanted && (!r.Reachable || !r.ReportCurrent || !r.StableReady) {
			return false
		}
	}
	return true
}

// falseReason returns why the reason that a move waits for is not true; "" if it is.
func falseReason(in Input, out Output) string {
	b := out.Blocked
	if b.Reason == "" {
		return ""
	}
	for i, r := range in.Targets {
		if r.Cluster != b.Cluster {
			continue
		}
		m := out.Transitions[i]
		isTrue := map[BlockedReason]bool{
			NotAvailable:   in.Divided && (counted(in, r) < max(m.Requested, r.Desired, r.Requested) || m.Requested > r.Desired),
			NotReady:       r.Reachable && r.ReportCurrent && !r.StableReady,
			NotReported:    r.Reachable,
			Unreachable:    !r.Reachable && !r.NotInInventory,
			NotInInventory: r.NotInInventory,
			StillRunning:   r.Total > 0 && r.Reachable && r.ReportCurrent,
			MustStop:       in.BreakBeforeMake && r.Reachable,
			PolicyMissing:  in.NoPolicy && r.Wanted && m.State == Pending,
		}
		if !isTrue[b.Reason] {
			return fmt.Sprintf("blocked by %+v, but %+v", b, r)
		}
		return waitsInVain(in, out, i)
	}
	return fmt.Sprintf("blocked by a cluster that is no target: %+v", b)
}

// waitsInVain makes the reason untrue, and returns what is wrong if the same reason is still given.
func waitsInVain(in Input, out Output, i int) string {
	in.Targets = append([]Target(nil), in.Targets...)
	r := &in.Targets[i]
	runs := r.State == Active || r.State == Draining
	switch out.Blocked.Reason {
	case NotAvailable:
		if !runs || counted(in, *r) == r.Requested || r.Requested < r.Desired { // it waits for more than these
			return ""
		}
		r.ReportCurrent, r.Available, r.AtMost, r.Until = true, r.Requested, r.Requested, in.Now.Add(in.Stable+time.Second)
	case NotReady:
		r.Ready, r.StableReady = true, true
	case NotReported:
		if !runs {
			return ""
		}
		r.ReportCurrent, r.Until = true, in.Now.Add(in.Stable+time.Second)
	case Unreachable, NotInInventory:
		r.Reachable, r.NotInInventory = true, false
	case StillRunning:
		r.Total = 0
	case PolicyMissing:
		in.NoPolicy = false
	default:
		return ""
	}
	next := Step(in)
	if next.Blocked.Reason == out.Blocked.Reason && next.Blocked.Cluster == out.Blocked.Cluster && reflect.DeepEqual(requests(next), requests(out)) {
		return fmt.Sprintf("L7: nothing changes without the reason %+v: %+v", out.Blocked, in.Targets)
	}
	return ""
}
