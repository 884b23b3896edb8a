// SPDX-License-Identifier: Apache-2.0

package summary

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
	yes   = "True"
	no    = "False"
	maybe = "Unknown"
)

// condition is what all kinds' conditions have in common.
type condition struct {
	kind, status, reason, message string
	observed                      *int64
	also                          string // a field with the time of the last look, by kind
}

// conditionsOf returns the conditions of a status by type.
func conditionsOf(status map[string]any) map[string]map[string]any {
	found := map[string]map[string]any{}
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			found[words(c, "type")] = c
		}
	}
	return found
}

// holds tells whether a status has a condition that is true.
func holds(status map[string]any, kind string) bool {
	return words(conditionsOf(status)[kind], "status") == yes
}

// setConditions gives a status its conditions, sorted by type. A condition that says
// what the object's present one says is that one, so that nothing is written.
func (in *input) setConditions(status map[string]any, list []condition) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b condition) int { return cmp.Compare(a.kind, b.kind) })
	present := conditionsOf(statusOf(in.object))
	rows := make([]any, 0, len(list))
	for _, c := range list {
		rows = append(rows, c.after(present[c.kind], in.now.UTC().Format(time.RFC3339)))
	}
	status["conditions"] = rows
}

// after is the condition as it is written, given the present one of its type and the
// time.
func (c condition) after(was map[string]any, now string) map[string]any {
	next := map[string]any{"type": c.kind, "status": c.status, "lastTransitionTime": now}
	for field, value := range map[string]string{"reason": c.reason, "message": c.message} {
		if value != "" {
			next[field] = value
		}
	}
	if c.observed != nil {
		next["observedGeneration"] = *c.observed
	}
	if words(was, "status") == c.status && words(was, "lastTransitionTime") != "" {
		next["lastTransitionTime"] = was["lastTransitionTime"]
	}
	if c.also != "" {
		next[c.also] = now
		same := words(was, "status") == c.status && words(was, "reason") == c.reason && words(was, "message") == c.message
		if same && words(was, c.also) != "" {
			next[c.also] = was[c.also]
		}
	}
	return next
}

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

// tell says of which cluster a message is.
func (in *input) tell(at int, message string) string {
	row := in.rows[at]
	if !row.Reachable {
		message = strings.TrimSpace(message + " (unreachable: this is the last report)")
	}
	return strings.TrimSuffix(row.Cluster+": "+message, ": ")
}

// where says in which clusters an object runs.
func (in *input) where() string {
	if len(in.rows) == 0 {
		return "no cluster"
	}
	names := make([]string, 0, len(in.rows))
	for _, row := range in.rows {
		if row.Reachable {
			names = append(names, row.Cluster)
		} else {
			names = append(names, row.Cluster+" (unreachable)")
		}
		if len(names) == 10 && len(in.rows) > 10 {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(in.rows)-10)
		}
	}
	return strings.Join(names, ", ")
}
