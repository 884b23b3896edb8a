// SPDX-License-Identifier: Apache-2.0

package aggregate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Values of a condition's status.
const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// condition is what all kinds' conditions have in common.
type condition struct {
	conditionType, status, reason, message string
	observedGeneration                     *int64
	timeField                              string // a field with the time of the last look, by kind
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

// setConditions gives a status its conditions, sorted by type. A condition that says
// what the object's present one says is that one, so that nothing is written.
func (in *aggregation) setConditions(status map[string]any, list []condition) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b condition) int { return cmp.Compare(a.conditionType, b.conditionType) })
	present := conditionsByType(statusOf(in.object))
	rows := make([]any, 0, len(list))
	for _, c := range list {
		rows = append(rows, c.toMap(present[c.conditionType], in.now.UTC().Format(time.RFC3339)))
	}
	status["conditions"] = rows
}

// toMap is the condition as it is written, given the present one of its type and the
// time.
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

// mergedConditions brings the clusters' conditions together: one is as all clusters say; where
// they differ it is as the one that is worst off, and the message names that.
func (in *aggregation) mergedConditions() []condition {
	kinds := map[string]bool{}
	for _, row := range in.reports {
		for kind := range conditionsByType(row.Status) {
			kinds[kind] = true
		}
	}
	var list []condition
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, in.mergeCondition(kind))
	}
	return list
}

// mergeCondition brings one type of condition together.
func (in *aggregation) mergeCondition(kind string) condition {
	worst, at := condition{conditionType: kind, status: healthyStatus(kind)}, -1
	var seen int64
	for i, row := range in.reports {
		c, ok := conditionsByType(row.Status)[kind]
		switch {
		case !ok && isAbnormalTrue(kind):
			continue // what is wrong is told where it is wrong
		case !ok:
			c = map[string]any{"status": statusUnknown, "reason": "NotReported", "message": "not reported yet"}
		}
		if _, ok := c["observedGeneration"]; ok || worst.observedGeneration != nil {
			seen = observedGeneration(in.object, in.reports)
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
		worst.message = in.withClusterName(at, worst.message)
	}
	return worst
}

// isAbnormalTrue tells whether a type of condition says that something is wrong when it is true,
// as kstatus and Kubernetes name such.
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

// healthyStatus is the status that a type of condition has when all is well.
func healthyStatus(kind string) string {
	if isAbnormalTrue(kind) {
		return statusFalse
	}
	return statusTrue
}

// healthRank orders a condition's statuses, the worst first.
func healthRank(kind, status string) int {
	switch status {
	case healthyStatus(kind):
		return 2
	case statusTrue, statusFalse:
		return 0
	}
	return 1
}

// withClusterName says of which cluster a message is.
func (in *aggregation) withClusterName(at int, message string) string {
	row := in.reports[at]
	if !row.Reachable {
		message = strings.TrimSpace(message + " (unreachable: this is the last report)")
	}
	return strings.TrimSuffix(row.Cluster+": "+message, ": ")
}

// clusterNames says in which clusters an object runs.
func (in *aggregation) clusterNames() string {
	if len(in.reports) == 0 {
		return "no cluster"
	}
	names := make([]string, 0, len(in.reports))
	for _, row := range in.reports {
		if row.Reachable {
			names = append(names, row.Cluster)
		} else {
			names = append(names, row.Cluster+" (unreachable)")
		}
		if len(names) == 10 && len(in.reports) > 10 {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(in.reports)-10)
		}
	}
	return strings.Join(names, ", ")
}
