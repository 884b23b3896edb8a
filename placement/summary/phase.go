// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// claim is the status of a PersistentVolumeClaim: bound when it is bound in all
// clusters, with the least capacity.
func claim(in *input) (map[string]any, error) {
	status := agreed(in.rows)
	capacity := map[string]any{}
	for _, row := range in.rows {
		has, _ := row.Status["capacity"].(map[string]any)
		for name := range has {
			size, err := resource.ParseQuantity(words(has, name))
			if err != nil {
				return nil, fmt.Errorf("cluster %s: status.capacity[%s] %v: %w", row.Cluster, name, has[name], err)
			}
			was, err := resource.ParseQuantity(words(capacity, name))
			if err != nil || size.Cmp(was) < 0 {
				capacity[name] = size.String()
			}
		}
	}
	if delete(status, "capacity"); len(capacity) > 0 {
		status["capacity"] = capacity
	}
	status["phase"] = phase(in.rows, "Lost", "Pending", "Bound")
	in.setConditions(status, in.merged())
	return status, nil
}

// pod is the status of a Pod in several clusters, which only a policy that duplicates
// Pods makes: nothing of it but the phase and the conditions has a meaning in common.
func pod(in *input) map[string]any {
	status := map[string]any{"phase": phase(in.rows, "Failed", "Unknown", "Pending", "Running", "Succeeded")}
	in.setConditions(status, in.merged())
	return status
}

// phase is the worst of the clusters' phases, which are given with the worst first.
// Without a report it is Pending.
func phase(rows []Row, order ...string) string {
	worst := len(order) - 1
	for _, row := range rows {
		at := slices.Index(order, words(row.Status, "phase"))
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
