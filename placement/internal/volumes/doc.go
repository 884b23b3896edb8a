// SPDX-License-Identifier: Apache-2.0

// Package volumes moves the volume of one PersistentVolumeClaim from the cluster that has it to another one that
// shares its storage, one step at a time.
//
// Step computes the next state from the stored one and from the reports of both clusters. FromAction and ToAction
// are what the hub orders in a state. Both agents carry an order out as a level: the same order again changes
// nothing. Therefore a lost write or a killed process does not matter: the transfer continues, or stands still.
//
// # A volume that one cluster may attach
//
//	Scaling → Detaching → Released → Binding → Bound → Discarding → Removing → Bound, without From
//
// The objects that use the claim leave From. From sets a fence: the PersistentVolume gets the reclaim policy Retain
// and belongs to no claim of the cluster, so that no new Pod can use it. When From has reported, under the fence, that
// no Pod and no VolumeAttachment uses the volume, To creates its PersistentVolume and claim. From keeps its objects
// until To has reported that its claim is bound to the same volume, and no object at the hub needs the claim in From.
//
// # A volume that several clusters may attach
//
// From only gets the reclaim policy Retain, in Scaling, and To is bound at once. From is fenced in Discarding.
//
// # Return
//
// Before Binding, From takes its fence back (Returning). From Binding on, To may attach the volume: it has to
// discard it first (Withdrawing, Undoing). When a volume that one cluster may attach is Bound, the transfer ends
// first, and the way back is another transfer.
//
// The package is pure: no I/O, no clock, no log.
package volumes
