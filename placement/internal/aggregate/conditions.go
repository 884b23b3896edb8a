// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Values of a condition's status.
const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// condition has the fields that the conditions of all kinds share.
type condition struct {
	conditionType, status, reason, message string
	observedGeneration                     *int64
	timeField                              string // lastUpdateTime or lastProbeTime, by kind; "" for none
}

// conditionsByType returns the conditions of a status by type.
func conditionsByType(status map[string]any) map[string]map[string]any {
	found := map[string]map[string]any{}
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			found[stringField(c, "type")] = c
		}
	}
	return found
}

// isConditionTrue tells whether a status has a condition that is true.
func isConditionTrue(status map[string]any, kind string) bool {
	return stringField(conditionsByType(status)[kind], "status") == statusTrue
}

// setConditions sets the conditions of a status, sorted by type. A condition keeps the times of the
// object's present one, as long as it is the same: then nothing is written.
func setConditions(object *unstructured.Unstructured, status map[string]any, list []condition, now time.Time) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b condition) int { return cmp.Compare(a.conditionType, b.conditionType) })
	present := conditionsByType(statusOf(object))
	conditions := make([]any, 0, len(list))
	for _, c := range list {
		conditions = append(conditions, c.toMap(present[c.conditionType], now.UTC().Format(time.RFC3339)))
	}
	status["conditions"] = conditions
}

// toMap returns the condition as JSON has it. was is the present condition of its type.
func (c condition) toMap(was map[string]any, now string) map[string]any {
	next := map[string]any{"type": c.conditionType, "status": c.status, "lastTransitionTime": now}
	for field, value := range map[string]string{"reason": c.reason, "message": c.message} {
		if value != "" {
			next[field] = value
		}
	}
	if c.observedGeneration != nil {
		next["observedGeneration"] = *c.observedGeneration
	}
	if stringField(was, "status") == c.status && stringField(was, "lastTransitionTime") != "" {
		next["lastTransitionTime"] = was["lastTransitionTime"]
	}
	if c.timeField != "" {
		next[c.timeField] = now
		same := stringField(was, "status") == c.status && stringField(was, "reason") == c.reason && stringField(was, "message") == c.message
		if same && stringField(was, c.timeField) != "" {
			next[c.timeField] = was[c.timeField]
		}
	}
	return next
}

// mergedConditions merges the clusters' conditions: where clusters differ, a condition is that of the
// unhealthiest cluster, which its message names.
func mergedConditions(object *unstructured.Unstructured, reports []Report) []condition {
	kinds := map[string]bool{}
	for _, r := range reports {
		for kind := range conditionsByType(r.Status) {
			kinds[kind] = true
		}
	}
	var list []condition
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, mergeCondition(object, reports, kind))
	}
	return list
}

// mergeCondition merges the conditions of one type.
func mergeCondition(object *unstructured.Unstructured, reports []Report, kind string) condition {
	worst, at := condition{conditionType: kind, status: healthyStatus(kind)}, -1
	var seen int64
	for i, r := range reports {
		c, ok := conditionsByType(r.Status)[kind]
		switch {
		case !ok && isAbnormalTrue(kind):
			continue // controllers set such a condition only where something is wrong
		case !ok:
			c = map[string]any{"status": statusUnknown, "reason": "NotReported", "message": "not reported yet"}
		}
		if _, ok := c["observedGeneration"]; ok || worst.observedGeneration != nil {
			seen = observedGeneration(object, reports)
			worst.observedGeneration = &seen
		}
		if at < 0 || healthRank(kind, stringField(c, "status")) < healthRank(kind, worst.status) {
			at = i
			worst.status, worst.reason, worst.message = stringField(c, "status"), stringField(c, "reason"), stringField(c, "message")
		}
		if _, ok := c["lastUpdateTime"]; ok {
			worst.timeField = "lastUpdateTime"
		}
	}
	if at >= 0 && worst.status != healthyStatus(kind) {
		worst.message = reports[at].withCluster(worst.message)
	}
	return worst
}

// isAbnormalTrue tells whether a type of condition is true when something is wrong, by the names that
// kstatus and Kubernetes use.
func isAbnormalTrue(kind string) bool {
	switch kind {
	case "Stalled", "Reconciling", "Degraded", "Recovering", "RecoveryDeferred", "AddressConflict", "Conflict", "Conflicting":
		return true
	}
	for _, end := range []string{"Failure", "Failed", "Pressure", "Limited", "Pending"} {
		if strings.HasSuffix(kind, end) {
			return true
		}
	}
	return false
}

// healthyStatus is the status of a type of condition on a healthy object.
func healthyStatus(kind string) string {
	if isAbnormalTrue(kind) {
		return statusFalse
	}
	return statusTrue
}

// healthRank orders the statuses of a condition, the unhealthiest first.
func healthRank(kind, status string) int {
	switch status {
	case healthyStatus(kind):
		return 2
	case statusTrue, statusFalse:
		return 0
	}
	return 1
}
