// SPDX-License-Identifier: Apache-2.0

package migration

import "github.com/patchbay-cni/patchbay/placement/internal/apportion"

// AutoscaledTarget is what is requested of one cluster that runs an object whose replicas are left to autoscalers.
type AutoscaledTarget struct {
	// Requested are the replicas that the hub requests.
	Requested int32
	// Most are the most replicas that the hub or the autoscaler has requested in this move, as stored; 0 before it.
	Most int32
	// Live are the replicas that the autoscaler requests, by the last report; nil if the hub alone requests replicas.
	Live *int32
	// Replaced is true for a cluster that was lost and reports again: other clusters run its replicas.
	Replaced bool
}

// FollowAutoscalers returns how many replicas are wanted in a move of such an object, and Most of each target. Wanted is
// what is stored, and 0 for a move that begins now: then it is what runs, without what is replaced. In a move it grows with what an
// autoscaler requests beyond Most, and never falls: replicas that leave one cluster run in others, whose
// autoscalers may not have seen their load. If each cluster has the whole object, it is the most of one cluster.
func FollowAutoscalers(wanted int32, divided bool, targets []AutoscaledTarget) (total int32, most []int32) {
	begins := wanted == 0
	sum := int64(wanted)
	for _, t := range targets {
		known := min(max(t.Requested, t.Most), apportion.MaxTotal)
		now := known
		switch {
		case t.Live == nil:
		case begins:
			now = max(0, *t.Live)
		default:
			now = max(known, *t.Live)
		}
		now = min(now, apportion.MaxTotal) // what a hostile cluster reports must leave room for the others
		switch {
		case divided && begins && !t.Replaced:
			sum += int64(now)
		case divided && !begins:
			sum += int64(now - known)
		case !divided && !t.Replaced:
			sum = max(sum, int64(now))
		}
		most = append(most, now)
	}
	return int32(min(sum, apportion.MaxTotal)), most
}
