// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"cmp"
	"slices"
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
