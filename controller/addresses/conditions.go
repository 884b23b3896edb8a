// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// tell brings the network's conditions up to what was read, and reports what got
// better or worse.
func (c *Controller) tell(ctx context.Context, r reading, w waiting, found conflicts) error {
	if r.Deleting {
		return nil
	}
	before := objectConditions(r)
	after := desired(before, r.Generation, usesOf(r.Object, c.reserved(ctx, r.Network)), w, found)
	if same(before, after) {
		return nil
	}
	stamp(before, after, metav1.NewTime(c.cfg.Now()))
	if err := c.apply(ctx, r, after); err != nil {
		return err
	}
	c.announce(r, before, after)
	return nil
}

// ours are the types of the conditions that this package writes.
func ours() []string {
	return []string{v1.ConditionAddressesAvailable, v1.ConditionRecovering, v1.ConditionRecoveryDeferred, v1.ConditionAddressConflict}
}

// objectConditions are the conditions that a network has.
func objectConditions(r reading) []metav1.Condition { return objects.StatusOf(r.obj).Conditions }

// desired are our conditions as they are to be, without times.
func desired(before []metav1.Condition, generation int64, uses []use, w waiting, found conflicts) []metav1.Condition {
	var after []metav1.Condition
	if u, ok := fullest(uses); ok {
		after = append(after, available(before, generation, u))
	} else if c := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable); c != nil && c.ObservedGeneration == generation {
		after = append(after, *c) // the bitmap cannot be read for the moment
	}
	if len(w.awaited) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecovering, Status: metav1.ConditionTrue, Reason: v1.ReasonAwaitingNodes,
			Message: recoveringText(w), ObservedGeneration: generation,
		})
	}
	if len(w.deferred) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecoveryDeferred, Status: metav1.ConditionTrue, Reason: v1.ReasonTooManyRollbacks,
			Message: deferredText(w.deferred), ObservedGeneration: generation,
		})
	}
	if old := meta.FindStatusCondition(before, v1.ConditionAddressConflict); found.unknown && old != nil {
		after = append(after, *old)
	} else if len(found.list) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionAddressConflict, Status: metav1.ConditionTrue, Reason: v1.ReasonDuplicateAddress,
			Message: conflictsText(found.list), ObservedGeneration: generation,
		})
	}
	return after
}

// available is the condition for a pool. The numbers in its message are those of
// its last change of reason: a write costs whoever claims at that moment a conflict.
func available(before []metav1.Condition, generation int64, u use) metav1.Condition {
	old := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable)
	if old == nil {
		old = &metav1.Condition{}
	}
	c := metav1.Condition{
		Type: v1.ConditionAddressesAvailable, Status: metav1.ConditionTrue,
		Reason: u.reason(old.Reason), ObservedGeneration: generation,
	}
	if c.Reason == v1.ReasonExhausted {
		c.Status = metav1.ConditionFalse
	}
	if c.Reason == old.Reason && old.ObservedGeneration == generation {
		c.Message = old.Message
	} else {
		c.Message = poolText(c.Reason, u)
	}
	return c
}

// same reports whether ours among before say what after says.
func same(before, after []metav1.Condition) bool {
	for _, kind := range ours() {
		a, b := meta.FindStatusCondition(before, kind), meta.FindStatusCondition(after, kind)
		if (a == nil) != (b == nil) {
			return false
		}
		if a != nil && (a.Status != b.Status || a.Reason != b.Reason || a.Message != b.Message || a.ObservedGeneration != b.ObservedGeneration) {
			return false
		}
	}
	return true
}

// stamp sets the times: a status that did not change keeps its time.
func stamp(before, after []metav1.Condition, now metav1.Time) {
	for i := range after {
		after[i].LastTransitionTime = now
		if old := meta.FindStatusCondition(before, after[i].Type); old != nil && old.Status == after[i].Status {
			after[i].LastTransitionTime = old.LastTransitionTime
		}
	}
}

// announce makes an Event of what changed for the users of a network. That there
// are addresses from the start is no news.
func (c *Controller) announce(r reading, before, after []metav1.Condition) {
	for i := range after {
		now := &after[i]
		old := meta.FindStatusCondition(before, now.Type)
		switch {
		case old != nil && old.Reason == now.Reason, old == nil && now.Reason == v1.ReasonEnough:
		case now.Reason == v1.ReasonEnough:
			c.events.Event(r.obj, corev1.EventTypeNormal, now.Reason, now.Message)
		default:
			c.events.Event(r.obj, corev1.EventTypeWarning, now.Reason, now.Message)
		}
	}
}
