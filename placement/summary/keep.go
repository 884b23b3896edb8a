// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

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
