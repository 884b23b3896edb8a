// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// balancers is the status of a Service or an Ingress: the addresses of the load
// balancers of the clusters where it is ready, sorted, each once. A cluster that the hub
// does not reach may be reached by others, so its addresses stay.
func balancers(rows []Row) map[string]any {
	var all []any
	for _, row := range rows {
		list, _, err := unstructured.NestedSlice(row.Status, "loadBalancer", "ingress")
		if row.Ready && err == nil {
			all = append(all, list...)
		}
	}
	slices.SortFunc(all, func(a, b any) int { return cmp.Compare(text(a), text(b)) })
	all = slices.CompactFunc(all, func(a, b any) bool { return text(a) == text(b) })
	balancer := map[string]any{}
	if len(all) > 0 {
		balancer["ingress"] = all
	}
	return map[string]any{"loadBalancer": balancer}
}

// text is a value as JSON, whose keys are sorted.
func text(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return "" // not from JSON, so from no API server
	}
	return string(raw)
}
