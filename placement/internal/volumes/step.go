// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// None is the state of a volume that is not transferred.
const None v1alpha1.VolumeState = ""

// Side is what is known of one cluster of a transfer.
type Side struct {
	// Needed is true when an object at the hub needs the claim there.
	Needed bool
	// Done is true when the cluster has reported that it has carried out the order of the present state.
	Done bool
	// Bound is true when the cluster has reported, with the present order, that its claim is bound to the volume.
	Bound bool
	// Gone is true when the cluster has removed the claim as ordered.
	Gone bool
	// Lost is true when an admin has declared the cluster lost: nothing attaches the volume there any more. It counts as
	// Done where the volume only has to be free.
	Lost bool
	// Absent is true when Cluster and Work are gone: no order can be given there, and nothing tells what the cluster runs.
	Absent bool
	// Waiting is what the cluster's report says that the order waits for; empty for nothing.
	Waiting string
}

// Input is the input of a step.
type Input struct {
	// State that is stored.
	State v1alpha1.VolumeState
	// Shared is true when several clusters may attach the volume.
	Shared bool
	// Return is true when the claim is wanted in From again, or in no cluster.
	Return bool
	// From is the cluster that the volume leaves, To the one that gets it.
	From, To Side
}

// Output is the result of a step.
type Output struct {
	// State to store. None: the volume is in From again. Settled tells the end in To.
	State v1alpha1.VolumeState
	// Settled is true when From has nothing left: the volume is in To.
	Settled bool
	// Waiting is what the transfer waits for; empty after a step.
	Waiting string
}

// Step computes the next state of a transfer.
func Step(in Input) Output {
	switch in.State {
	case v1alpha1.VolumeScaling:
		return scaling(in)
	case v1alpha1.VolumeDetaching:
		if in.Return {
			return Output{State: v1alpha1.VolumeReturning}
		}
		return in.await(in.From, in.From.isFree(), v1alpha1.VolumeReleased, "the first cluster must detach the volume")
	case v1alpha1.VolumeReleased:
		switch {
		case in.Return:
			return Output{State: v1alpha1.VolumeReturning}
		case !in.From.isFree():
			return Output{State: v1alpha1.VolumeDetaching}
		}
		return Output{State: v1alpha1.VolumeBinding}
	case v1alpha1.VolumeBinding:
		return binding(in)
	case v1alpha1.VolumeBound:
		return bound(in)
	case v1alpha1.VolumeDiscarding: // a lost cluster may come back, and must then delete it without the data
		return in.await(in.From, in.From.Done || in.From.Absent, v1alpha1.VolumeRemoving, "the first cluster must delete its PersistentVolume object")
	case v1alpha1.VolumeRemoving:
		if in.From.Gone || in.From.Absent {
			return Output{State: v1alpha1.VolumeBound, Settled: true}
		}
		return Output{State: in.State, Waiting: cmp.Or(in.From.Waiting, "the first cluster must delete its claim")}
	case v1alpha1.VolumeWithdrawing:
		return in.await(in.To, in.To.isFree(), v1alpha1.VolumeUndoing, "the other cluster must delete its PersistentVolume object")
	case v1alpha1.VolumeUndoing:
		if in.To.Gone {
			return Output{State: v1alpha1.VolumeReturning}
		}
		return Output{State: in.State, Waiting: cmp.Or(in.To.Waiting, "the other cluster must delete its claim")}
	case v1alpha1.VolumeReturning:
		return in.await(in.From, in.From.isFree() || in.From.Absent, None, "the first cluster must take its fence back")
	}
	return Output{State: in.State, Waiting: "the state is unknown: a later version of the hub has stored it"}
}

// isFree tells whether a cluster does not use the volume, or has got it back, by its report or by an admin's word.
func (s Side) isFree() bool { return s.Done || s.Lost }

// holds tells whether objects keep a volume in a cluster.
func (s Side) holds() bool { return s.Needed && !s.Lost }

// await returns the next state when a cluster is ready for it.
func (in Input) await(side Side, ready bool, next v1alpha1.VolumeState, waiting string) Output {
	if ready {
		return Output{State: next}
	}
	return Output{State: in.State, Waiting: cmp.Or(side.Waiting, waiting)}
}

func scaling(in Input) Output {
	switch {
	case in.Return:
		return Output{State: None}
	case in.Shared:
		return in.await(in.From, in.From.isFree(), v1alpha1.VolumeBinding, "the first cluster must set the reclaim policy Retain")
	case in.From.holds():
		return Output{State: in.State, Waiting: "the objects that use the claim must leave its cluster"}
	}
	return Output{State: v1alpha1.VolumeDetaching}
}

func binding(in Input) Output {
	switch {
	case in.Return && !in.To.holds():
		return Output{State: v1alpha1.VolumeWithdrawing}
	case in.To.Bound:
		return Output{State: v1alpha1.VolumeBound}
	}
	return Output{State: in.State, Waiting: cmp.Or(in.To.Waiting, "the other cluster must bind its claim to the volume")}
}

func bound(in Input) Output {
	switch {
	case in.Return && !in.To.holds():
		return Output{State: v1alpha1.VolumeWithdrawing}
	case in.From.holds():
		return Output{State: in.State, Waiting: "the objects that use the claim must leave its first cluster"}
	case !in.To.Bound:
		return Output{State: in.State, Waiting: cmp.Or(in.To.Waiting, "the claim of the other cluster must be bound to the volume")}
	}
	return Output{State: v1alpha1.VolumeDiscarding}
}

// FromAction returns what the cluster that the volume leaves is ordered in a state.
func FromAction(state v1alpha1.VolumeState, shared bool) v1alpha1.VolumeAction {
	switch state {
	case None, v1alpha1.VolumeReturning:
		return v1alpha1.VolumeKeep
	case v1alpha1.VolumeDiscarding, v1alpha1.VolumeRemoving:
		return v1alpha1.VolumeDiscard
	case v1alpha1.VolumeScaling:
		if !shared {
			return v1alpha1.VolumeKeep
		}
	}
	if shared {
		return v1alpha1.VolumeRetain
	}
	return v1alpha1.VolumeFence
}

// ToAction returns what the cluster that gets the volume is ordered in a state; "" when it gets no order yet.
func ToAction(state v1alpha1.VolumeState) v1alpha1.VolumeAction {
	switch state {
	case v1alpha1.VolumeBinding, v1alpha1.VolumeBound, v1alpha1.VolumeDiscarding, v1alpha1.VolumeRemoving:
		return v1alpha1.VolumeBind
	case v1alpha1.VolumeWithdrawing, v1alpha1.VolumeUndoing:
		return v1alpha1.VolumeDiscard
	}
	return ""
}

// IsIn tells whether objects may start with the volume in a cluster of a transfer, by the state. A shared volume stays
// usable in the first cluster until that must discard it.
func IsIn(state v1alpha1.VolumeState, shared, isFrom bool) bool {
	switch state {
	case v1alpha1.VolumeBound:
		return !isFrom || shared
	case v1alpha1.VolumeDiscarding, v1alpha1.VolumeRemoving:
		return !isFrom
	}
	return isFrom && shared
}

// IsSameVolume tells whether a report is about the volume.
func IsSameVolume(a, b *v1alpha1.VolumeSource) bool {
	return a != nil && b != nil && a.Driver == b.Driver && a.Handle == b.Handle
}
