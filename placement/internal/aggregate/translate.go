// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TranslateStatus returns the status of an object that runs in one cluster: the cluster's status, with
// observedGeneration translated to the hub's generations. Fields that the API server does not let
// decrease keep the value of an earlier report. It returns nil when there is nothing to write: no
// report yet, or a kind whose status the hub's controllers write.
func TranslateStatus(object *unstructured.Unstructured, r Report) map[string]any {
	gk := object.GroupVersionKind().GroupKind()
	if r.Status == nil || gk.String() == namespaceKind {
		return nil
	}
	status := runtime.DeepCopyJSON(r.Status)
	translateGenerations(object, r, status)
	switch {
	case gk.String() == jobKind:
		return keepJobProgress(object, status)
	case gk.Group == networkGroup:
		maps.DeleteFunc(status, func(field string, _ any) bool { return !isReportedNetworkField(field) })
	default:
		keepCollisionCount(object, status)
	}
	return status
}

// isReportedNetworkField tells whether the hub stores a field of a network's status.
func isReportedNetworkField(field string) bool {
	return field == "conditions" || field == "pools"
}

// translateGenerations replaces observedGeneration in status and conditions, which counts the cluster's
// generations, by the generation of the hub's object.
func translateGenerations(object *unstructured.Unstructured, r Report, status map[string]any) {
	if _, ok := status["observedGeneration"]; ok {
		status["observedGeneration"] = observedGeneration(object, []Report{r})
	}
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			translateConditionGeneration(object, r, c)
		}
	}
}

// translateConditionGeneration does so for one condition. A condition that is some generations behind its
// object in the cluster is as many behind at the hub.
func translateConditionGeneration(object *unstructured.Unstructured, r Report, c map[string]any) {
	if _, ok := c["observedGeneration"]; !ok {
		return
	}
	seen := min(r.ObservedGeneration, object.GetGeneration())
	if behind := r.Generation - numberOrZero(c, "observedGeneration"); behind > 0 {
		seen = max(0, seen-behind)
	}
	c["observedGeneration"] = seen
}

// observedGeneration returns the generation of the hub's object that all clusters have observed. It never
// decreases, although a changed Customization makes clusters observe the object again.
func observedGeneration(object *unstructured.Unstructured, reports []Report) int64 {
	seen := object.GetGeneration()
	for _, r := range reports {
		seen = min(seen, r.ObservedGeneration)
	}
	return min(object.GetGeneration(), max(seen, numberOrZero(statusOf(object), "observedGeneration")))
}

// keepCollisionCount keeps a collisionCount that was larger, or that no cluster reports any more: the API
// server rejects a smaller or missing one.
func keepCollisionCount(object *unstructured.Unstructured, status map[string]any) {
	const field = "collisionCount"
	was := statusOf(object)
	_, had := was[field]
	_, has := status[field]
	if had && (!has || numberOrZero(was, field) > numberOrZero(status, field)) {
		status[field] = numberOrZero(was, field)
	}
}

// keepJobProgress changes the next status of a Job to one that the API server accepts after the present
// one (ValidateJobStatusUpdate): a finished Job stays as it is, counters do not decrease, announced
// outcomes are not withdrawn, and startTime stays.
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

// keepJobOutcome keeps an announced outcome: a report of another cluster neither turns success into
// failure, nor withdraws either.
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
