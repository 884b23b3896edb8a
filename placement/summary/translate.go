// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Exact is the status of an object that runs in one cluster: that cluster's, with
// observedGeneration translated. Only what the API server would refuse, as it goes back
// to before what another cluster has reported, is kept as it was. The answer is nil when
// there is nothing to write: no report yet, or a kind whose status is the hub's own.
func Exact(object *unstructured.Unstructured, row Row) map[string]any {
	gk := object.GroupVersionKind().GroupKind()
	if row.Status == nil || gk == namespaces {
		return nil
	}
	status := runtime.DeepCopyJSON(row.Status)
	translate(object, row, status)
	switch {
	case gk == jobs:
		return keepJob(object, status)
	case gk.Group == networkGroup:
		maps.DeleteFunc(status, func(field string, _ any) bool { return !travels(field) })
	default:
		keepCollisions(object, status)
	}
	return status
}

// travels tells whether a field of a network's status comes to the hub.
func travels(field string) bool {
	return field == "conditions" || field == "allocated" || field == "capacity"
}

// translate brings observedGeneration, that of conditions too, from the cluster's
// generations to the hub's.
func translate(object *unstructured.Unstructured, row Row, status map[string]any) {
	if _, ok := status["observedGeneration"]; ok {
		status["observedGeneration"] = observed(object, []Row{row})
	}
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			translateCondition(object, row, c)
		}
	}
}

// translateCondition brings a condition's observedGeneration to the hub's: a condition
// that is older than its status speaks of an older object.
func translateCondition(object *unstructured.Unstructured, row Row, c map[string]any) {
	if _, ok := c["observedGeneration"]; !ok {
		return
	}
	seen := min(row.Observed, object.GetGeneration())
	if behind := row.Generation - least(c, "observedGeneration"); behind > 0 {
		seen = max(0, seen-behind)
	}
	c["observedGeneration"] = seen
}

// observed is the generation of the hub's object that all rows have seen. It does not
// go back: a Customization that changes makes clusters render anew what they had seen.
func observed(object *unstructured.Unstructured, rows []Row) int64 {
	seen := object.GetGeneration()
	for _, row := range rows {
		seen = min(seen, row.Observed)
	}
	return min(object.GetGeneration(), max(seen, least(statusOf(object), "observedGeneration")))
}

// keepCollisions keeps a count of collisions that was larger, or is told of no longer: the
// API server refuses a smaller one and the lack of one, whichever cluster reports it.
func keepCollisions(object *unstructured.Unstructured, status map[string]any) {
	const field = "collisionCount"
	was := statusOf(object)
	_, told := was[field]
	_, tells := status[field]
	if told && (!tells || least(was, field) > least(status, field)) {
		status[field] = least(was, field)
	}
}

// keepJob brings the next status of a Job to what the API server takes after the
// present one (its ValidateJobStatusUpdate): a Job that has ended stays as it ended,
// counters do not fall, what is to come is not taken back, and the start stays.
func keepJob(object *unstructured.Unstructured, next map[string]any) map[string]any {
	was := statusOf(object)
	if holds(was, jobComplete) || holds(was, jobFailed) {
		return runtime.DeepCopyJSON(was)
	}
	for _, field := range []string{"succeeded", "failed"} {
		if n := least(was, field); n > least(next, field) {
			next[field] = n
		}
	}
	suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend")
	if start, ok := was["startTime"]; ok && !suspended {
		next["startTime"] = start
	}
	keepEnd(was, next)
	if !holds(next, jobComplete) {
		delete(next, "completionTime")
	} else if before(words(next, "completionTime"), words(next, "startTime")) {
		next["completionTime"] = next["startTime"]
	}
	return next
}

// keepEnd keeps what a Job was said to come to: another cluster's report does not turn
// success into failure, nor take either back.
func keepEnd(was, next map[string]any) {
	for kind, others := range map[string][]string{
		jobSucceeds: {jobFails, jobFailed},
		jobFails:    {jobSucceeds, jobComplete},
	} {
		if !holds(was, kind) {
			continue
		}
		list, _ := next["conditions"].([]any)
		list = slices.DeleteFunc(slices.Clone(list), func(c any) bool {
			m, _ := c.(map[string]any)
			return slices.Contains(others, words(m, "type"))
		})
		if !holds(map[string]any{"conditions": list}, kind) {
			list = append(list, runtime.DeepCopyJSON(conditionsOf(was)[kind]))
		}
		next["conditions"] = list
	}
}
