// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"maps"

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
