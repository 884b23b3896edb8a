// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reportedStatus is the object's status as it is. Of our own networks only what does not
// change with every address that a Pod gets: else each claim were a write at the hub. Of a
// status that is too large come conditions and counts.
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

// truncateStatus keeps of a status the observedGeneration, the other numbers and the conditions with
// short messages, in this order, as far as they fit.
func truncateStatus(status map[string]any, limit int) map[string]any {
	kept, left := map[string]any{}, limit-jsonSize(map[string]any{"conditions": []any{}})
	take := func(field string, value any) bool {
		left -= jsonSize(map[string]any{field: value})
		return left >= 0
	}
	fields := slices.Sorted(maps.Keys(status))
	slices.SortStableFunc(fields, func(a, b string) int { return cmp.Compare(fieldRank(a), fieldRank(b)) })
	for _, field := range fields {
		switch value := status[field].(type) {
		case int64, float64:
			if take(field, value) {
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
		if take("", short) {
			list = append(list, short)
		}
	}
	if list != nil {
		kept["conditions"] = list
	}
	return kept
}

// fieldRank puts observedGeneration before all other fields.
func fieldRank(field string) int {
	if field == "observedGeneration" {
		return 0
	}
	return 1
}

// reservedBytes is what is left in MaxObjectBytes for the metadata that API servers add.
const reservedBytes = 16 << 10

// jsonSize is how many bytes a value has as JSON.
func jsonSize(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // cannot be: it was decoded from JSON, or is a type of ours
	}
	return len(raw)
}

// isReady is kstatus' answer.
func isReady(live *unstructured.Unstructured) bool {
	result, err := status.Compute(live)
	return err == nil && result.Status == status.CurrentStatus
}

// runsPods tells whether Pods may be made for an object: built-in kinds without a
// Pod template have none; other kinds may.
func runsPods(live *unstructured.Unstructured) bool {
	group := live.GroupVersionKind().Group
	if group == "apps" || group == "batch" {
		return true
	}
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && group != danm.GroupName
}
