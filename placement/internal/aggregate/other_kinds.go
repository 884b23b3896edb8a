// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// loadBalancerStatus is the status of a Service or an Ingress: the addresses of the load
// balancers of the clusters where it is ready, sorted, each once. A cluster that the hub
// does not reach may be reached by others, so its addresses stay.
func loadBalancerStatus(rows []Report) map[string]any {
	var all []any
	for _, row := range rows {
		list, _, err := unstructured.NestedSlice(row.Status, "loadBalancer", "ingress")
		if row.Ready && err == nil {
			all = append(all, list...)
		}
	}
	slices.SortFunc(all, func(a, b any) int { return cmp.Compare(jsonText(a), jsonText(b)) })
	all = slices.CompactFunc(all, func(a, b any) bool { return jsonText(a) == jsonText(b) })
	balancer := map[string]any{}
	if len(all) > 0 {
		balancer["ingress"] = all
	}
	return map[string]any{"loadBalancer": balancer}
}

// jsonText is a value as JSON, whose keys are sorted.
func jsonText(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return "" // not from JSON, so from no API server
	}
	return string(raw)
}

// volumeClaimStatus is the status of a PersistentVolumeClaim: bound when it is bound in all
// clusters, with the least capacity.
func volumeClaimStatus(in *aggregation) (map[string]any, error) {
	status := commonFields(in.reports)
	capacity := map[string]any{}
	for _, row := range in.reports {
		has, _ := row.Status["capacity"].(map[string]any)
		for name := range has {
			size, err := resource.ParseQuantity(stringField(has, name))
			if err != nil {
				return nil, fmt.Errorf("cluster %s: status.capacity[%s] %v: %w", row.Cluster, name, has[name], err)
			}
			was, err := resource.ParseQuantity(stringField(capacity, name))
			if err != nil || size.Cmp(was) < 0 {
				capacity[name] = size.String()
			}
		}
	}
	if delete(status, "capacity"); len(capacity) > 0 {
		status["capacity"] = capacity
	}
	status["phase"] = worstPhase(in.reports, "Lost", "Pending", "Bound")
	in.setConditions(status, in.mergedConditions())
	return status, nil
}

// podStatus is the status of a Pod in several clusters, which only a policy that duplicates
// Pods makes: nothing of it but the phase and the conditions has a meaning in common.
func podStatus(in *aggregation) map[string]any {
	status := map[string]any{"phase": worstPhase(in.reports, "Failed", "Unknown", "Pending", "Running", "Succeeded")}
	in.setConditions(status, in.mergedConditions())
	return status
}

// worstPhase is the worst of the clusters' phases, which are given with the worst first.
// Without a report it is Pending.
func worstPhase(rows []Report, order ...string) string {
	worst := len(order) - 1
	for _, row := range rows {
		at := slices.Index(order, stringField(row.Status, "phase"))
		if at < 0 {
			at = slices.Index(order, "Pending")
		}
		worst = min(worst, at)
	}
	if len(rows) == 0 {
		return "Pending"
	}
	return order[worst]
}

// cronJobStatus is the status of a CronJob: what runs in any cluster, and when it last did.
func cronJobStatus(rows []Report) map[string]any {
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
	setLatestTimes(status, rows, "lastScheduleTime", "lastSuccessfulTime")
	return runtime.DeepCopyJSON(status)
}

// setLatestTimes gives a status the latest of what the clusters say of some times.
func setLatestTimes(status map[string]any, rows []Report, fields ...string) {
	for _, row := range rows {
		for _, field := range fields {
			if at := stringField(row.Status, field); isTimeBefore(stringField(status, field), at) {
				status[field] = at
			}
		}
	}
}

// isTimeBefore tells whether one time as text is before another; no time is before any.
func isTimeBefore(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errY == nil && (errX != nil || x.Before(y))
}

// networkGroup is the API group of our networks. Of their statuses little travels: the
// bitmap would make every claim of an address a write at the hub.
const networkGroup = "danm.io"

// unknownKindStatus is the status of an object of a kind that nobody here knows: what all clusters
// have in common, conditions brought together, observedGeneration translated. Nothing
// is there that no cluster has, so a status of the kind's schema comes of statuses of it.
func unknownKindStatus(in *aggregation) map[string]any {
	status := commonFields(in.reports)
	conditions := in.mergedConditions()
	if len(status) == 0 && len(conditions) == 0 {
		return nil
	}
	for _, row := range in.reports {
		if _, ok := row.Status["observedGeneration"]; ok {
			status["observedGeneration"] = observedGeneration(in.object, in.reports)
		}
	}
	in.setConditions(status, conditions)
	return status
}

// commonFields are the fields that all rows have, with the same values; conditions and
// observedGeneration are left out.
func commonFields(rows []Report) map[string]any {
	if len(rows) == 0 {
		return map[string]any{}
	}
	same := maps.Clone(rows[0].Status)
	maps.DeleteFunc(same, func(field string, value any) bool {
		for _, row := range rows {
			if other, ok := row.Status[field]; !ok || !reflect.DeepEqual(value, other) {
				return true
			}
		}
		return field == "conditions" || field == "observedGeneration"
	})
	if same == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(same)
}
