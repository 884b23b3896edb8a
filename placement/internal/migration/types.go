// SPDX-License-Identifier: Apache-2.0

package migration

import "time"

// State is where a cluster stands.
type State string

// States of a row.
const (
	// None: the cluster has nothing and is to have nothing.
	None State = ""
	// Pending: it is to have the object when it is its turn.
	Pending State = "Pending"
	// Active: it has a Work with the object.
	Active State = "Active"
	// Draining: it is to lose the object, and still serves.
	Draining State = "Draining"
	// Removing: the order to remove is given.
	Removing State = "Removing"
)

// Target is one cluster.
type Target struct {
	// Cluster by name, unique among the rows.
	Cluster string
	// Wanted says that the cluster is to have the object in the end.
	Wanted bool
	// Desired is how many replicas it is to have then; 0 when not Wanted.
	Desired int32

	// State that is stored, and since when (or since Asked has its value).
	State State
	// Since is when State or Asked last changed.
	Since time.Time
	// Requested is how many replicas are asked of it now.
	Requested int32

	// Reachable says that reports arrive.
	Reachable bool
	// ReportCurrent says that the report speaks of what is asked now.
	ReportCurrent bool
	// Ready says that the object is ready there.
	Ready bool
	// Available replicas, and Total that exist, as reported.
	Available, Total int32
	// Removed says that the cluster has carried out the order to remove.
	Removed bool
	// NotInInventory says that the inventory does not have the cluster: it may come back, and keeps
	// what it has.
	NotInInventory bool
}

// Input is all that a step depends on.
type Input struct {
	// Targets of all clusters that have or are to have the object.
	Targets []Target
	// Divided says that replicas are divided; else each cluster has the object whole.
	Divided bool
	// MaxSurge is how many more replicas than desired may be asked.
	MaxSurge int32
	// MaxUnavailable is how many of the desired replicas may be missing.
	MaxUnavailable int32
	// BreakBeforeMake removes before it makes.
	BreakBeforeMake bool
	// NoPolicy says that no policy says how to move any more: what is under way goes on as far as
	// nothing new starts beside what leaves.
	NoPolicy bool
	// Settle is how long a cluster stays with 0 replicas before it is removed.
	Settle time.Duration
	// DesiredSince is when what is wanted last changed.
	DesiredSince time.Time
	// Deadline after Since; 0 is none.
	Deadline time.Duration
	// ProceedAtDeadline at the deadline, though the replacement is not there.
	ProceedAtDeadline bool
	// Now is the present time.
	Now time.Time
}

// Transition is what is to be stored of one cluster.
type Transition struct {
	// Cluster by name.
	Cluster string
	// State of the cluster; None: drop it.
	State State
	// Requested is how many replicas are asked of it.
	Requested int32
	// Since is Input.Now if State or Asked changed, else as it was.
	Since time.Time
}

// Output is a step.
type Output struct {
	// Transitions are one for each row, in its order.
	Transitions []Transition
	// Blocked says what a move waits for; empty: it waits for nothing, or goes on.
	Blocked string
	// Done says that all is as wanted, as far as orders go.
	Done bool
	// RequeueAfter is when to look again though nothing is reported; 0: never.
	RequeueAfter time.Duration
}
