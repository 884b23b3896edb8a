// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TranslateStatus is the status of an object that runs in one cluster: that cluster's, with
// observedGeneration translated. Only what the API server would refuse, as it goes back
// to before what another cluster has reported, is kept as it was. The answer is nil when
// there is nothing to write: no report yet, or a kind whose status is the hub's own.
func TranslateStatus(object *unstructured.Unstructured, row Report) map[string]any {
	gk := object.GroupVersionKind().GroupKind()
	if row.Status == nil || gk == namespaceKind {
		return nil
	}
	status := runtime.DeepCopyJSON(row.Status)
	translateGenerations(object, row, status)
	switch {
	case gk == jobKind:
		return keepJobProgress(object, status)
	case gk.Group == networkGroup:
		maps.DeleteFunc(status, func(field string, _ any) bool { return !isReportedNetworkField(field) })
	default:
		keepCollisionCount(object, status)
	}
	return status
}

// isReportedNetworkField tells whether a field of a network's status comes to the hub.
func isReportedNetworkField(field string) bool {
	return field == "conditions" || field == "allocated" || field == "capacity"
}

// translateGenerations brings observedGeneration, that of conditions too, from the cluster's
// generations to the hub's.
func translateGenerations(object *unstructured.Unstructured, row Report, status map[string]any) {
	if _, ok := status["observedGeneration"]; ok {
		status["observedGeneration"] = observedGeneration(object, []Report{row})
	}
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			translateConditionGeneration(object, row, c)
		}
	}
}

// translateConditionGeneration brings a condition's observedGeneration to the hub's: a condition
// that is older than its status speaks of an older object.
func translateConditionGeneration(object *unstructured.Unstructured, row Report, c map[string]any) {
	if _, ok := c["observedGeneration"]; !ok {
		return
	}
	seen := min(row.ObservedGeneration, object.GetGeneration())
	if behind := row.Generation - numberOrZero(c, "observedGeneration"); behind > 0 {
		seen = max(0, seen-behind)
	}
	c["observedGeneration"] = seen
}

// observedGeneration is the generation of the hub's object that all rows have seen. It does not
// go back: a Customization that changes makes clusters render anew what they had seen.
func observedGeneration(object *unstructured.Unstructured, rows []Report) int64 {
	seen := object.GetGeneration()
	for _, row := range rows {
		seen = min(seen, row.ObservedGeneration)
	}
	return min(object.GetGeneration(), max(seen, numberOrZero(statusOf(object), "observedGeneration")))
}

// keepCollisionCount keeps a count of collisions that was larger, or is told of no longer: the
// API server refuses a smaller one and the lack of one, whichever cluster reports it.
func keepCollisionCount(object *unstructured.Unstructured, status map[string]any) {
	const field = "collisionCount"
	was := statusOf(object)
	_, told := was[field]
	_, tells := status[field]
	if told && (!tells || numberOrZero(was, field) > numberOrZero(status, field)) {
		status[field] = numberOrZero(was, field)
	}
}

// keepJobProgress brings the next status of a Job to what the API server takes after the
// present one (its ValidateJobStatusUpdate): a Job that has ended stays as it ended,
// counters do not fall, what is to come is not taken back, and the start stays.
func keepJobProgress(object *unstructured.Unstructured, next map[string]any) map[string]any {
	was := statusOf(object)
	if isConditionTrue(was, jobComplete) || isConditionTrue(was, jobFailed) {
		return runtime.DeepCopyJSON(was)
	}
	for _, field := range []string{"succeeded", "failed"} {
		if n := numberOrZero(was, field); n > numberOrZero(next, field) {
			next[field] = n
		}
	}
	suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend")
	if start, ok := was["startTime"]; ok && !suspended {
		next["startTime"] = start
	}
	keepJobOutcome(was, next)
	if !isConditionTrue(next, jobComplete) {
		delete(next, "completionTime")
	} else if isTimeBefore(stringField(next, "completionTime"), stringField(next, "startTime")) {
		next["completionTime"] = next["startTime"]
	}
	return next
}

// keepJobOutcome keeps what a Job was said to come to: another cluster's report does not turn
// success into failure, nor take either back.
func keepJobOutcome(was, next map[string]any) {
	for kind, others := range map[string][]string{
		jobSuccessCriteriaMet: {jobFailureTarget, jobFailed},
		jobFailureTarget:      {jobSuccessCriteriaMet, jobComplete},
	} {
		if !isConditionTrue(was, kind) {
			continue
		}
		list, _ := next["conditions"].([]any)
		list = slices.DeleteFunc(slices.Clone(list), func(c any) bool {
			m, _ := c.(map[string]any)
			return slices.Contains(others, stringField(m, "type"))
		})
		if !isConditionTrue(map[string]any{"conditions": list}, kind) {
			list = append(list, runtime.DeepCopyJSON(conditionsByType(was)[kind]))
		}
		next["conditions"] = list
	}
}
