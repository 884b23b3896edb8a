// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reportedStatus returns the status of a live object for the report: the exact one, or conditions and counts
// of one that is too large. Of DANM's networks it returns only the fields that do not change with each
// address claim, because else each claim would be a write at the hub.
func reportedStatus(live *unstructured.Unstructured) (status *runtime.RawExtension, truncated bool) {
	value, _ := live.Object["status"].(map[string]any)
	if len(value) == 0 {
		return nil, false
	}
	if live.GroupVersionKind().Group == danm.GroupName {
		kept := map[string]any{}
		for _, field := range []string{"conditions", "allocated", "capacity"} {
			if v, ok := value[field]; ok {
				kept[field] = v
			}
		}
		value = kept
	}
	if jsonSize(value) > v1alpha1.MaxStatusBytes {
		truncated, value = true, truncateStatus(value, v1alpha1.MaxStatusBytes)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, false // cannot be: it was decoded from JSON
	}
	return &runtime.RawExtension{Raw: raw}, truncated
}

// truncateStatus keeps observedGeneration, the other numbers and the conditions with shortened messages, in
// this order, as far as they fit into limit bytes.
func truncateStatus(status map[string]any, limit int) map[string]any {
	kept, left := map[string]any{}, limit-jsonSize(map[string]any{"conditions": []any{}})
	fits := func(field string, value any) bool {
		left -= jsonSize(map[string]any{field: value})
		return left >= 0
	}
	fields := slices.Sorted(maps.Keys(status))
	slices.SortStableFunc(fields, func(a, b string) int { return cmp.Compare(fieldRank(a), fieldRank(b)) })
	for _, field := range fields {
		switch value := status[field].(type) {
		case int64, float64:
			if fits(field, value) {
				kept[field] = value
			}
		}
	}
	conditions, _ := status["conditions"].([]any)
	var list []any
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		short := map[string]any{}
		for _, field := range []string{"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"} {
			switch value := c[field].(type) {
			case string:
				short[field] = truncateMessage(value)
			case int64:
				short[field] = value
			}
		}
		if fits("", short) {
			list = append(list, short)
		}
	}
	if list != nil {
		kept["conditions"] = list
	}
	return kept
}

// fieldRank sorts observedGeneration before all other fields.
func fieldRank(field string) int {
	if field == "observedGeneration" {
		return 0
	}
	return 1
}

// reservedBytes is the part of MaxObjectBytes for the metadata that API servers add.
const reservedBytes = 16 << 10

// jsonSize returns the size of a value as JSON, in bytes.
func jsonSize(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // cannot be: it was decoded from JSON, or is an API type
	}
	return len(raw)
}
