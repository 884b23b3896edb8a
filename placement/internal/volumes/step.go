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
		return in.await(in.From, v1alpha1.VolumeReleased, "the first cluster must detach the volume")
	case v1alpha1.VolumeReleased:
		switch {
		case in.Return:
			return Output{State: v1alpha1.VolumeReturning}
		case !in.From.Done:
			return Output{State: v1alpha1.VolumeDetaching}
		}
		return Output{State: v1alpha1.VolumeBinding}
	case v1alpha1.VolumeBinding:
		return binding(in)
	case v1alpha1.VolumeBound:
		return bound(in)
	case v1alpha1.VolumeDiscarding:
		return in.await(in.From, v1alpha1.VolumeRemoving, "the first cluster must delete its PersistentVolume object")
	case v1alpha1.VolumeRemoving:
		if in.From.Gone {
			return Output{State: v1alpha1.VolumeBound, Settled: true}
		}
		return Output{State: in.State, Waiting: cmp.Or(in.From.Waiting, "the first cluster must delete its claim")}
	case v1alpha1.VolumeWithdrawing:
		return in.await(in.To, v1alpha1.VolumeUndoing, "the other cluster must delete its PersistentVolume object")
	case v1alpha1.VolumeUndoing:
		if in.To.Gone {
			return Output{State: v1alpha1.VolumeReturning}
		}
		return Output{State: in.State, Waiting: cmp.Or(in.To.Waiting, "the other cluster must delete its claim")}
	case v1alpha1.VolumeReturning:
		return in.await(in.From, None, "the first cluster must take its fence back")
	}
	return Output{State: in.State, Waiting: "the state is unknown: a later version of the hub has stored it"}
}

// await returns the next state when a cluster has carried out its order.
func (in Input) await(side Side, next v1alpha1.VolumeState, waiting string) Output {
	if side.Done {
		return Output{State: next}
	}
	return Output{State: in.State, Waiting: cmp.Or(side.Waiting, waiting)}
}

func scaling(in Input) Output {
	switch {
	case in.Return:
		return Output{State: None}
	case in.Shared:
		return in.await(in.From, v1alpha1.VolumeBinding, "the first cluster must set the reclaim policy Retain")
	case in.From.Needed:
		return Output{State: in.State, Waiting: "the objects that use the claim must leave its cluster"}
	}
	return Output{State: v1alpha1.VolumeDetaching}
}

func binding(in Input) Output {
	switch {
	case in.Return && !in.To.Needed:
		return Output{State: v1alpha1.VolumeWithdrawing}
	case in.To.Bound:
		return Output{State: v1alpha1.VolumeBound}
	}
	return Output{State: in.State, Waiting: cmp.Or(in.To.Waiting, "the other cluster must bind its claim to the volume")}
}

func bound(in Input) Output {
	switch {
	case in.Shared && in.Return && !in.To.Needed:
		return Output{State: v1alpha1.VolumeWithdrawing}
	case in.From.Needed:
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

// IsSameVolume tells whether a report is about the volume.
func IsSameVolume(a, b *v1alpha1.VolumeSource) bool {
	return a != nil && b != nil && a.Driver == b.Driver && a.Handle == b.Handle
}
