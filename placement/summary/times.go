// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// cronJob is the status of a CronJob: what runs in any cluster, and when it last did.
func cronJob(rows []Row) map[string]any {
	status := map[string]any{}
	var active []any
	for _, row := range rows {
		list, _, err := unstructured.NestedSlice(row.Status, "active")
		if err == nil {
			active = append(active, list...)
		}
	}
	if len(active) > 0 {
		status["active"] = active
	}
	latest(status, rows, "lastScheduleTime", "lastSuccessfulTime")
	return runtime.DeepCopyJSON(status)
}

// latest gives a status the latest of what the clusters say of some times.
func latest(status map[string]any, rows []Row, fields ...string) {
	for _, row := range rows {
		for _, field := range fields {
			if at := words(row.Status, field); before(words(status, field), at) {
				status[field] = at
			}
		}
	}
}

// before tells whether one time as text is before another; no time is before any.
func before(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errY == nil && (errX != nil || x.Before(y))
}
