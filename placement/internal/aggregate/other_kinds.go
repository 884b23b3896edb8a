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

// loadBalancerStatus returns the status of a Service or an Ingress: the load balancer addresses of the
// clusters where it is ready, sorted, each once. Addresses of a cluster that the hub cannot reach stay,
// because clients may reach it.
func loadBalancerStatus(reports []Report) map[string]any {
	var all []any
	for _, r := range reports {
		list, _, err := unstructured.NestedSlice(r.Status, "loadBalancer", "ingress")
		if r.Ready && err == nil {
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

// jsonText encodes a value as JSON, with sorted keys.
func jsonText(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return "" // cannot be: it was decoded from JSON
	}
	return string(raw)
}

// volumeClaimStatus returns the status of a PersistentVolumeClaim: Bound when it is bound in all
// clusters, with the smallest capacity.
func volumeClaimStatus(object *unstructured.Unstructured, reports []Report, now time.Time) (map[string]any, error) {
	status := commonFields(reports)
	capacity := map[string]any{}
	for _, r := range reports {
		reported, _ := r.Status["capacity"].(map[string]any)
		for name := range reported {
			size, err := resource.ParseQuantity(stringField(reported, name))
			if err != nil {
				return nil, fmt.Errorf("cluster %s: status.capacity[%s] %v: %w", r.Cluster, name, reported[name], err)
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
	status["phase"] = worstPhase(reports, "Lost", "Pending", "Bound")
	setConditions(object, status, mergedConditions(object, reports), now)
	return status, nil
}

// podStatus returns the status of a Pod in several clusters: phase and conditions, the only fields with a
// meaning for all of them.
func podStatus(object *unstructured.Unstructured, reports []Report, now time.Time) map[string]any {
	status := map[string]any{"phase": worstPhase(reports, "Failed", "Unknown", "Pending", "Running", "Succeeded")}
	setConditions(object, status, mergedConditions(object, reports), now)
	return status
}

// worstPhase returns the first phase of order that a cluster reports; Pending without a report.
func worstPhase(reports []Report, order ...string) string {
	worst := len(order) - 1
	for _, r := range reports {
		at := slices.Index(order, stringField(r.Status, "phase"))
		if at < 0 {
			at = slices.Index(order, "Pending")
		}
		worst = min(worst, at)
	}
	if len(reports) == 0 {
		return "Pending"
	}
	return order[worst]
}

// cronJobStatus returns the status of a CronJob: the active Jobs of all clusters, and the latest times.
func cronJobStatus(reports []Report) map[string]any {
	status := map[string]any{}
	var active []any
	for _, r := range reports {
		list, _, err := unstructured.NestedSlice(r.Status, "active")
		if err == nil {
			active = append(active, list...)
		}
	}
	if len(active) > 0 {
		status["active"] = active
	}
	setLatestTimes(status, reports, "lastScheduleTime", "lastSuccessfulTime")
	return runtime.DeepCopyJSON(status)
}

// setLatestTimes sets time fields of a status to the latest of the clusters' values.
func setLatestTimes(status map[string]any, reports []Report, fields ...string) {
	for _, r := range reports {
		for _, field := range fields {
			if at := stringField(r.Status, field); isTimeBefore(stringField(status, field), at) {
				status[field] = at
			}
		}
	}
}

// isTimeBefore tells whether the RFC 3339 time a is before b. An invalid a is before any valid b.
func isTimeBefore(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errY == nil && (errX != nil || x.Before(y))
}

// networkGroup is the API group of DANM's networks. Agents report only a few fields of their statuses:
// with the allocation bitmap, every address claim would be a write at the hub.
const networkGroup = "danm.io"

// networkStatus returns the status of a network: the pools of all clusters, added up by family because
// each cluster has addresses of its own, and merged conditions.
func networkStatus(object *unstructured.Unstructured, reports []Report, now time.Time) (map[string]any, error) {
	byFamily := map[string]map[string]any{}
	for _, r := range reports {
		pools, _ := r.Status["pools"].([]any)
		for _, p := range pools {
			pool, _ := p.(map[string]any)
			family := stringField(pool, "family")
			if byFamily[family] == nil {
				byFamily[family] = map[string]any{"family": family}
			}
			if err := addPool(byFamily[family], pool); err != nil {
				return nil, fmt.Errorf("cluster %s: status.pools[%s]: %w", r.Cluster, family, err)
			}
		}
	}
	status := map[string]any{}
	var pools []any
	for _, family := range slices.Sorted(maps.Keys(byFamily)) { // IPv4 first
		pools = append(pools, byFamily[family])
	}
	if len(pools) > 0 {
		status["pools"] = pools
	}
	setConditions(object, status, mergedConditions(object, reports), now)
	return status, nil
}

// addPool adds the numbers of a pool to those of sum.
func addPool(sum, pool map[string]any) error {
	for field := range pool {
		if field == "family" {
			continue
		}
		n, err := numberField(pool, field)
		if err != nil {
			return err
		}
		sum[field] = addSaturating(numberOrZero(sum, field), n)
	}
	return nil
}

// unknownKindStatus returns the status of a kind that this package does not know: the fields that all
// clusters have with the same values, merged conditions, and the translated observedGeneration. Each
// field is one that a cluster reports, so the status fits the kind's schema.
func unknownKindStatus(object *unstructured.Unstructured, reports []Report, now time.Time) map[string]any {
	status := commonFields(reports)
	conditions := mergedConditions(object, reports)
	if len(status) == 0 && len(conditions) == 0 {
		return nil
	}
	for _, r := range reports {
		if _, ok := r.Status["observedGeneration"]; ok {
			status["observedGeneration"] = observedGeneration(object, reports)
		}
	}
	setConditions(object, status, conditions, now)
	return status
}

// commonFields returns the fields that all reports have with the same values, without conditions and
// observedGeneration.
func commonFields(reports []Report) map[string]any {
	if len(reports) == 0 {
		return map[string]any{}
	}
	same := maps.Clone(reports[0].Status)
	maps.DeleteFunc(same, func(field string, value any) bool {
		for _, r := range reports {
			if other, ok := r.Status[field]; !ok || !reflect.DeepEqual(value, other) {
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
