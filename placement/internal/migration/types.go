// SPDX-License-Identifier: Apache-2.0

package migration

import "time"

// State of a cluster in a move.
type State string

// States of a target.
const (
	// None: the cluster does not have the object, and will not get it.
	None State = ""
	// Pending: the cluster will get the object later in the move.
	Pending State = "Pending"
	// Active: the cluster has a Work with the object.
	Active State = "Active"
	// Draining: the cluster will lose the object, and still runs it.
	Draining State = "Draining"
	// Removing: the removal is ordered.
	Removing State = "Removing"
	// Lost: the cluster does not report, others replace it, and it gets no order until it reports again.
	Lost State = "Lost"
)

// Target is one cluster of a move.
type Target struct {
	// Cluster is the name of the cluster, unique among the targets.
	Cluster string
	// Wanted is true when the cluster is to have the object after the move.
	Wanted bool
	// Desired are the replicas after the move; 0 when not Wanted.
	Desired int32

	// State that is stored.
	State State
	// Since is when State or Requested last changed.
	Since time.Time
	// Requested are the replicas that are requested of the cluster now. For Removing: those that the cluster
	// keeps when the order is withdrawn.
	Requested int32

	// Reachable is true when the cluster reports.
	Reachable bool
	// ReportCurrent is true when the report belongs to the present request.
	ReportCurrent bool
	// Ready is true when the object is ready in the cluster.
	Ready bool
	// StableReady is true when the object was ready in all reports of the last Input.Stable.
	StableReady bool
	// Available is the smallest number of available replicas in all reports of the last Input.Stable; 0 if
	// they do not cover the time.
	Available int32
	// AtMost is the largest number of available replicas in these reports; math.MaxInt32 if they do not cover
	// the time.
	AtMost int32
	// Total are the existing replicas, as last reported.
	Total int32
	// Until is the time up to which the cluster has reported all changes.
	Until time.Time
	// Fallback are the replicas to which the cluster may grow again while it loses them; 0 for none.
	Fallback int32
	// Lost is true when the cluster is unreachable and others replace it: nothing of it counts, and it gets no order.
	// It must be false for a cluster that may still run what must not run twice.
	Lost bool
	// Returned is true when the cluster was lost, and has not yet lost the object since it reports again, or not
	// reported for Input.Stable.
	Returned bool
	// Proceed is true when the cluster loses the object although no replacement is available, because a
	// drain's deadline has passed.
	Proceed bool
	// Removed is true when the cluster has carried out the order to remove.
	Removed bool
	// Ordered is true when the removal was ordered, and is not carried out, also while the cluster is Lost.
	Ordered bool
	// NotInInventory is true when there is no Cluster object: it may be created again, and the cluster keeps
	// the object.
	NotInInventory bool
	// AllAtOnce is true when the hub cannot request fewer replicas of the cluster but 0, because an autoscaler that it
	// does not know requests them. They take no room of the surge: else they could never be replaced.
	AllAtOnce bool
	// Awaits is what must come to the cluster before it starts the object, such as a volume; empty for nothing.
	Awaits string
	// Serves is true when Services of other clusters have endpoints of the object's Pods in this one, or may get some.
	Serves bool
	// Withdrawn is true when the hub has begun to withdraw these endpoints from the other clusters.
	Withdrawn bool
	// TrafficIn is a cluster that has not acknowledged the withdrawal, and TrafficCause why not; "" for none.
	TrafficIn, TrafficCause string
	// Replacements is the smallest number of endpoints in wanted clusters that one of these other clusters has, and
	// ReplacementsIn is that cluster.
	Replacements   int32
	ReplacementsIn string
}

// Input is the input of a step.
type Input struct {
	// Targets are the clusters that have the object, or are to have it.
	Targets []Target
	// Divided is true when the clusters share the replicas; else each has the object with all of them.
	Divided bool
	// MaxSurge is how many more replicas than desired may be requested.
	MaxSurge int32
	// MaxUnavailable is how many of the desired replicas may be unavailable. A step of a move removes as many
	// at once, too, if that is more than a quarter of the desired ones.
	MaxUnavailable int32
	// BreakBeforeMake removes the object before it starts elsewhere.
	BreakBeforeMake bool
	// NoPolicy is true when the policy is gone, and with it the mode of the move. A started move goes on, but
	// no cluster starts the object while another one still has to lose it.
	NoPolicy bool
	// Stable is how long reports must have said what Available, AtMost and StableReady of a target say.
	Stable time.Duration
	// Settle is how long a cluster keeps the object with 0 replicas before its removal.
	Settle time.Duration
	// DesiredSince is when the desired targets last changed.
	DesiredSince time.Time
	// Deadline of the move after DesiredSince; 0 is none.
	Deadline time.Duration
	// ProceedAtDeadline scales down and removes at the deadline, although the replacement is not ready.
	ProceedAtDeadline bool
	// Now is the current time.
	Now time.Time
}

// Transition is the new state of one cluster, to be stored.
type Transition struct {
	// Cluster is the name of the cluster.
	Cluster string
	// State of the cluster; None drops the target.
	State State
	// Requested are the replicas to request of the cluster.
	Requested int32
	// Fallback are the replicas to which the cluster may grow again while it loses them; 0 for none.
	Fallback int32
	// Returned is true when the cluster was lost, and reports again.
	Returned bool
	// Since is Input.Now if State or Requested changed, or if it is after Input.Now; else it is unchanged.
	Since time.Time
	// Withdraw is true while the other clusters must get no endpoints of the object's Pods in this one.
	Withdraw bool
}

// BlockedReason classifies what a move waits for.
type BlockedReason string

// What a move waits for.
const (
	// NotAvailable: too few replicas have been available in the other clusters for long enough.
	NotAvailable BlockedReason = "NotAvailable"
	// NotReady: the object has not been ready in a wanted cluster for long enough.
	NotReady BlockedReason = "NotReady"
	// NotReported: a cluster has not reported what the hub last requested of it, or not since the last step.
	NotReported BlockedReason = "NotReported"
	// Unreachable: a cluster does not report.
	Unreachable BlockedReason = "Unreachable"
	// NotInInventory: there is no Cluster object.
	NotInInventory BlockedReason = "NotInInventory"
	// StillRunning: a cluster that is to lose the object still runs replicas.
	StillRunning BlockedReason = "StillRunning"
	// MustStop: a cluster must stop the object before another one starts it.
	MustStop BlockedReason = "MustStop"
	// NotPrepared: what must come to a cluster before it starts the object is not there yet.
	NotPrepared BlockedReason = "NotPrepared"
	// PolicyMissing: no cluster starts the object in this move until a policy selects it again.
	PolicyMissing BlockedReason = "PolicyMissing"
	// NotWithdrawn: a cluster may still send traffic to replicas that are to leave another one.
	NotWithdrawn BlockedReason = "NotWithdrawn"
)

// Blocked is what a move waits for.
type Blocked struct {
	// Reason classifies it; empty when the move does not wait.
	Reason BlockedReason
	// Cluster that the move waits for.
	Cluster string
	// Message names it.
	Message string
}

// Output is the result of a step.
type Output struct {
	// Transitions has one entry for each target, in the same order.
	Transitions []Transition
	// RolledBack are the replicas that were given back to clusters that were to lose them.
	RolledBack int32
	// Blocked is what the move waits for.
	Blocked Blocked
	// Done is true when all targets are requested as desired.
	Done bool
	// RequeueAfter is when to compute the next step without a new report; 0 is never.
	RequeueAfter time.Duration
}
