// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"maps"
	"slices"
	"strings"
)

// merged brings the clusters' conditions together: one is as all clusters say; where
// they differ it is as the one that is worst off, and the message names that.
func (in *input) merged() []condition {
	kinds := map[string]bool{}
	for _, row := range in.rows {
		for kind := range conditionsOf(row.Status) {
			kinds[kind] = true
		}
	}
	var list []condition
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, in.merge(kind))
	}
	return list
}

// merge brings one type of condition together.
func (in *input) merge(kind string) condition {
	worst, at := condition{kind: kind, status: goodOf(kind)}, -1
	var seen int64
	for i, row := range in.rows {
		c, ok := conditionsOf(row.Status)[kind]
		switch {
		case !ok && bad(kind):
			continue // what is wrong is told where it is wrong
		case !ok:
			c = map[string]any{"status": maybe, "reason": "NotReported", "message": "not reported yet"}
		}
		if _, ok := c["observedGeneration"]; ok || worst.observed != nil {
			seen = observed(in.object, in.rows)
			worst.observed = &seen
		}
		if at < 0 || rank(kind, words(c, "status")) < rank(kind, worst.status) {
			at = i
			worst.status, worst.reason, worst.message = words(c, "status"), words(c, "reason"), words(c, "message")
		}
		if _, ok := c["lastUpdateTime"]; ok {
			worst.also = "lastUpdateTime"
		}
	}
	if at >= 0 && worst.status != goodOf(kind) {
		worst.message = in.tell(at, worst.message)
	}
	return worst
}

// tell says of which cluster a message is.
func (in *input) tell(at int, message string) string {
	row := in.rows[at]
	if !row.Reachable {
		message = strings.TrimSpace(message + " (unreachable: this is the last report)")
	}
	return strings.TrimSuffix(row.Cluster+": "+message, ": ")
}

// bad tells whether a type of condition says that something is wrong when it is true,
// as kstatus and Kubernetes name such.
func bad(kind string) bool {
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

// goodOf is the status that a type of condition has when all is well.
func goodOf(kind string) string {
	if bad(kind) {
		return no
	}
	return yes
}

// rank orders a condition's statuses, the worst first.
func rank(kind, status string) int {
	switch status {
	case goodOf(kind):
		return 2
	case yes, no:
		return 0
	}
	return 1
}
