// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// ownedConditions are the types of the conditions that this package writes.
func ownedConditions() []string {
	return []string{v1.ConditionAddressesAvailable, v1.ConditionRecovering, v1.ConditionRecoveryDeferred, v1.ConditionAddressConflict}
}

// objectConditions are the conditions that a network has.
func objectConditions(r networkSnapshot) []metav1.Condition {
	return kube.NetworkStatusOf(r.obj).Conditions
}

// desiredConditions are our conditions as they are to be, without times.
func desiredConditions(before []metav1.Condition, generation int64, uses []poolUsage, w recoveryProgress, found conflictFindings) []metav1.Condition {
	var after []metav1.Condition
	if u, ok := mostUtilized(uses); ok {
		after = append(after, availableCondition(before, generation, u))
	} else if c := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable); c != nil && c.ObservedGeneration == generation {
		after = append(after, *c) // the bitmap cannot be read for the moment
	}
	if len(w.awaited) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecovering, Status: metav1.ConditionTrue, Reason: v1.ReasonAwaitingNodes,
			Message: recoveringMessage(w), ObservedGeneration: generation,
		})
	}
	if len(w.deferred) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecoveryDeferred, Status: metav1.ConditionTrue, Reason: v1.ReasonTooManyRollbacks,
			Message: deferredMessage(w.deferred), ObservedGeneration: generation,
		})
	}
	if old := meta.FindStatusCondition(before, v1.ConditionAddressConflict); found.unknown && old != nil {
		after = append(after, *old)
	} else if len(found.list) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionAddressConflict, Status: metav1.ConditionTrue, Reason: v1.ReasonDuplicateAddress,
			Message: conflictsMessage(found.list), ObservedGeneration: generation,
		})
	}
	return after
}

// availableCondition is the condition for a pool. The numbers in its message are those of
// its last change of reason: a write costs whoever claims at that moment a conflict.
func availableCondition(before []metav1.Condition, generation int64, u poolUsage) metav1.Condition {
	old := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable)
	if old == nil {
		old = &metav1.Condition{}
	}
	c := metav1.Condition{
		Type: v1.ConditionAddressesAvailable, Status: metav1.ConditionTrue,
		Reason: u.reason(old.Reason), ObservedGeneration: generation,
	}
	if c.Reason == v1.ReasonAddressesExhausted {
		c.Status = metav1.ConditionFalse
	}
	if c.Reason == old.Reason && old.ObservedGeneration == generation {
		c.Message = old.Message
	} else {
		c.Message = poolMessage(c.Reason, u)
	}
	return c
}

// poolMessage says how a pool is, and what to do.
func poolMessage(reason string, u poolUsage) string {
	switch reason {
	case v1.ReasonAddressesExhausted:
		return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes: new Pods wait. "+
			"Widen the allocation pool in spec.Options, or delete Pods; kubelet retries by itself", u.inUse, u.capacity, u.family)
	case v1.ReasonAddressesNearlyExhausted:
		return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes (as of this change). "+
			"Widen the allocation pool in spec.Options before it is exhausted", u.inUse, u.capacity, u.family)
	}
	return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes (as of this change); "+
		"status.allocated has the number now", u.inUse, u.capacity, u.family)
}

// recoveringMessage says whom a recovery waits for, and what to do.
func recoveringMessage(w recoveryProgress) string {
	text := "status.ipam was older than what a node remembers (was etcd restored?) at " + w.since +
		": no address is given out until these nodes have said what they use: " + joinNames(w.awaited) +
		". For one that is off: kubectl patchbay ipam skip NODE"
	if len(w.skipped) > 0 {
		text += ". Left out on request: " + joinNames(w.skipped)
	}
	return text
}

// deferredMessage names the nodes that report too many rollbacks, and says what to do.
func deferredMessage(deferred map[string]metav1.MicroTime) string {
	names := make([]string, 0, len(deferred))
	for _, name := range slices.Sorted(maps.Keys(deferred)) {
		names = append(names, fmt.Sprintf("%s (until %s)", name, deferred[name].UTC().Format(time.RFC3339)))
	}
	return "these nodes have started several recoveries of this network by reports of older state: " + joinNames(names) +
		". Until then, further reports stop only the node itself. If etcd was not restored that often, look whether the node was taken over"
}

// conflictsMessage is the message of the condition. Its Event may be cut: the addresses come last.
func conflictsMessage(all []claims.Conflict) string {
	const most = 8 << 10 // of the 32 KiB of a condition
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = conflictMessage(all[i])
	}
	return "connections to these addresses may fail, since each has two owners: delete one of the Pods of each. " +
		"If a node has the other, check whether it was taken over. " + joinLimited(texts, "; ", 1, most)
}

// conflictMessage names an address and its owners.
func conflictMessage(c claims.Conflict) string {
	names := make([]string, len(c.Owners))
	for i, o := range c.Owners {
		names[i] = fmt.Sprintf("Pod %s/%s on node %s", o.Namespace, o.Pod, o.Node)
		if o.Pod == "" {
			names[i] = fmt.Sprintf("node %s, by its entry in status.ipam.held", o.Node)
		}
	}
	return fmt.Sprintf("%v: %s", c.Addr, joinLimited(names, " and ", 2, maxNamesLength))
}

// conditionsEqual reports whether ours among before say what after says.
func conditionsEqual(before, after []metav1.Condition) bool {
	for _, kind := range ownedConditions() {
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

// setTransitionTimes sets the times: a status that did not change keeps its time.
func setTransitionTimes(before, after []metav1.Condition, now metav1.Time) {
	for i := range after {
		after[i].LastTransitionTime = now
		if old := meta.FindStatusCondition(before, after[i].Type); old != nil && old.Status == after[i].Status {
			after[i].LastTransitionTime = old.LastTransitionTime
		}
	}
}

// maxNames and mostText bound the names in a message, and their bytes: Events hold 1 KiB,
// and the name of a node may have 253 bytes.
const maxNames, maxNamesLength = 8, 350

// joinNames writes names for a message, the first few and how many more.
func joinNames(names []string) string { return joinLimited(names, ", ", 1, maxNamesLength) }

// joinLimited is list with something else between the names. It writes at least so many, and more
// while they have at most so many bytes.
func joinLimited(names []string, between string, least, most int) string {
	text := ""
	for i, name := range names {
		if i == maxNames || i >= least && len(text)+len(between)+len(name) > most {
			return fmt.Sprintf("%s and %d more", text, len(names)-i)
		}
		if i > 0 {
			text += between
		}
		text += name
	}
	return text
}
