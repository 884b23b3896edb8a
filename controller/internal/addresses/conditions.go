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
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// ownedConditions returns the types of the conditions that this package writes.
func ownedConditions() []string {
	return []string{v1.ConditionAddressesAvailable, v1.ConditionRecovering, v1.ConditionRecoveryDeferred, v1.ConditionAddressConflict}
}

// objectConditions returns the conditions of a network, of all owners.
func objectConditions(r networkSnapshot) []metav1.Condition {
	return kube.NetworkStatusOf(r.obj).Conditions
}

// objectPools returns the numbers of a network's addresses in its status.
func objectPools(r networkSnapshot) []v1.PoolStatus { return kube.NetworkStatusOf(r.obj).Pools }

// observedGeneration returns the generation in a network's status.
func observedGeneration(r networkSnapshot) int64 {
	return kube.NetworkStatusOf(r.obj).ObservedGeneration
}

// desiredConditions returns the conditions that this package should own in a network's status,
// without transition times.
func desiredConditions(before []metav1.Condition, generation int64, pools []v1.PoolStatus, advice growthAdvice, p recoveryProgress, found conflictFindings) []metav1.Condition {
	var after []metav1.Condition
	if pool, ok := mostUtilized(pools); ok {
		after = append(after, availableCondition(before, generation, pool, advice))
	} else if c := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable); c != nil && c.ObservedGeneration == generation {
		after = append(after, *c) // the bitmap cannot be read at the moment
	}
	if len(p.awaited) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecovering, Status: metav1.ConditionTrue, Reason: v1.ReasonAwaitingNodes,
			Message: recoveringMessage(p), ObservedGeneration: generation,
		})
	}
	if len(p.deferred) > 0 {
		after = append(after, metav1.Condition{
			Type: v1.ConditionRecoveryDeferred, Status: metav1.ConditionTrue, Reason: v1.ReasonTooManyRollbacks,
			Message: deferredMessage(p.deferred), ObservedGeneration: generation,
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

// mostUtilized returns the family with the highest utilization; false when there is none.
func mostUtilized(pools []v1.PoolStatus) (v1.PoolStatus, bool) {
	var worst v1.PoolStatus
	for i, p := range pools {
		if i == 0 || utilization(p) > utilization(worst) {
			worst = p
		}
	}
	return worst, len(pools) > 0
}

// usedAddresses returns how many dynamic addresses of a pool are not free.
func usedAddresses(p v1.PoolStatus) int64 { return p.Capacity - p.Free }

// utilization returns the part of the pool that is not free, from 0 to 1.
func utilization(p v1.PoolStatus) float64 { return float64(usedAddresses(p)) / float64(p.Capacity) }

// availableCondition returns the condition AddressesAvailable of a pool. The numbers in its message
// are those of the last change of its reason, because every write makes concurrent claims of the
// network conflict.
func availableCondition(before []metav1.Condition, generation int64, p v1.PoolStatus, advice growthAdvice) metav1.Condition {
	old := meta.FindStatusCondition(before, v1.ConditionAddressesAvailable)
	if old == nil {
		old = &metav1.Condition{}
	}
	c := metav1.Condition{
		Type: v1.ConditionAddressesAvailable, Status: metav1.ConditionTrue,
		Reason: poolReason(p, old.Reason), ObservedGeneration: generation,
	}
	if c.Reason == v1.ReasonAddressesExhausted {
		c.Status = metav1.ConditionFalse
	}
	if c.Reason == old.Reason && old.ObservedGeneration == generation {
		c.Message = old.Message
	} else {
		c.Message = poolMessage(c.Reason, p, advice[p.Family])
	}
	return c
}

// Thresholds of a pool's utilization at which its condition changes. Between the two of a pair the
// condition stays, so that one Pod that comes and goes causes no write.
const (
	scarceThreshold         = 0.90 // Scarce from this utilization on,
	scarceClearThreshold    = 0.85 // until it falls below this one.
	exhaustedClearThreshold = 0.98 // Exhausted at 1, until it falls below this one.
)

// poolReason returns the reason of the condition AddressesAvailable, given the one before ("" for none).
func poolReason(p v1.PoolStatus, before string) string {
	switch share := utilization(p); {
	case p.Free <= 0, before == v1.ReasonAddressesExhausted && share >= exhaustedClearThreshold:
		return v1.ReasonAddressesExhausted
	case share >= scarceThreshold, before != "" && before != v1.ReasonAddressesSufficient && share >= scarceClearThreshold:
		return v1.ReasonAddressesNearlyExhausted
	}
	return v1.ReasonAddressesSufficient
}

// growthAdvice has by family how a pool gets more addresses.
type growthAdvice map[string]string

// newGrowthAdvice returns the advice for a network.
func newGrowthAdvice(o *status.Object) growthAdvice {
	advice := growthAdvice{}
	v4, v6 := o.Subnets()
	if v4 != nil {
		advice["IPv4"] = v4.GrowthAdvice(o.Network)
	}
	if v6 != nil {
		advice["IPv6"] = v6.GrowthAdvice(o.Network)
	}
	return advice
}

// poolMessage states how full a pool is, and what to do; advice is how it gets more addresses.
func poolMessage(reason string, p v1.PoolStatus, advice string) string {
	switch reason {
	case v1.ReasonAddressesExhausted:
		return fmt.Sprintf("%d of %d %s addresses are in use or pre-allocated by nodes: new Pods wait. "+
			"Delete Pods, or %s; kubelet retries", usedAddresses(p), p.Capacity, p.Family, advice)
	case v1.ReasonAddressesNearlyExhausted:
		return fmt.Sprintf("%d of %d %s addresses are in use or pre-allocated by nodes (as of this change). "+
			"Before it is exhausted, %s", usedAddresses(p), p.Capacity, p.Family, advice)
	}
	return fmt.Sprintf("%d of %d %s addresses are in use or pre-allocated by nodes (as of this change); "+
		"status.pools has the present numbers", usedAddresses(p), p.Capacity, p.Family)
}

// recoveringMessage names the nodes that a recovery waits for, and states what to do.
func recoveringMessage(p recoveryProgress) string {
	text := "at " + p.since + " status.ipam was older than a node's record, as after a restore of etcd: " +
		"no address is allocated until these nodes have reported the addresses that they use: " + joinNames(p.awaited) +
		". To exclude a powered-off node: kubectl patchbay ipam skip NODE"
	if len(p.skipped) > 0 {
		text += ". Left out on request: " + joinNames(p.skipped)
	}
	return text
}

// deferredMessage names the nodes that report too many rollbacks, and states what to do.
func deferredMessage(deferred map[string]metav1.MicroTime) string {
	names := make([]string, 0, len(deferred))
	for _, name := range slices.Sorted(maps.Keys(deferred)) {
		names = append(names, fmt.Sprintf("%s (until %s)", name, deferred[name].UTC().Format(time.RFC3339)))
	}
	return "these nodes have started several recoveries of this network with rollback reports: " + joinNames(names) +
		". Until then, a further report stops allocation on that node only. If etcd was not restored that often, check the node for a compromise"
}

// conflictsMessage is the message of the condition AddressConflict. An Event with it may be cut, so
// the addresses come last.
func conflictsMessage(all []gc.Conflict) string {
	const maxLength = 8 << 10 // of the 32 KiB that a condition may have
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = conflictMessage(all[i])
	}
	return "connections to these addresses may fail, since each has two owners: delete one of the Pods of each. " +
		"If the other owner is a node, check it for a compromise. " + joinLimited(texts, "; ", 1, maxLength)
}

// conflictMessage names an address and its owners.
func conflictMessage(c gc.Conflict) string {
	names := make([]string, len(c.Owners))
	for i, o := range c.Owners {
		names[i] = fmt.Sprintf("Pod %s/%s on node %s", o.Namespace, o.Pod, o.Node)
		if o.Pod == "" {
			names[i] = fmt.Sprintf("node %s, by its entry in status.ipam.held", o.Node)
		}
	}
	return fmt.Sprintf("%v: %s", c.Addr, joinLimited(names, " and ", 2, maxNamesLength))
}

// conditionsEqual reports whether our conditions have the same content in both lists, apart from
// times.
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

// setTransitionTimes sets lastTransitionTime: a condition whose status is unchanged keeps its time.
func setTransitionTimes(before, after []metav1.Condition, now metav1.Time) {
	for i := range after {
		after[i].LastTransitionTime = now
		if old := meta.FindStatusCondition(before, after[i].Type); old != nil && old.Status == after[i].Status {
			after[i].LastTransitionTime = old.LastTransitionTime
		}
	}
}

// maxNames bounds the names in a message, and maxNamesLength their bytes: an Event has at most 1
// KiB, and a node's name may have 253 bytes.
const maxNames, maxNamesLength = 8, 350

// joinNames joins names for a message: the first few, and how many more there are.
func joinNames(names []string) string { return joinLimited(names, ", ", 1, maxNamesLength) }

// joinLimited is joinNames with another separator. It writes at least so many names, and more while
// the text has at most so many bytes.
func joinLimited(names []string, separator string, minNames, maxLength int) string {
	text := ""
	for i, name := range names {
		if i == maxNames || i >= minNames && len(text)+len(separator)+len(name) > maxLength {
			return fmt.Sprintf("%s and %d more", text, len(names)-i)
		}
		if i > 0 {
			text += separator
		}
		text += name
	}
	return text
}
