// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// LinkEvent is a change of the node's state. A reconciliation has at most one of each reason,
// whatever the number of links.
type LinkEvent struct {
	// Reason is one of v1.Reasons.
	Reason string
	// Warning is whether the state got worse.
	Warning bool
	// Message names the first link or network, and the number of others.
	Message string
}

// linkEvents compares the statuses of two reconciliations; before is nil for the first. A failure in
// the first is an Event, a link that is up is not. Changes are those of the later one.
func linkEvents(before, after *v1.NodeNetworkStatus, changes []Change) []LinkEvent {
	known, refused := map[string]v1.HostLink{}, map[string]string{}
	if before != nil {
		for _, l := range before.Links {
			known[l.Name] = l
		}
		for _, r := range before.Refused {
			refused[r.Network] = r.Error
		}
	}
	created := restoredLinks(changes)
	var failed, up, restored, rejected []string
	for _, l := range after.Links {
		old, ok := known[l.Name]
		switch {
		case l.State == v1.LinkUp && ok && old.State != v1.LinkUp:
			up = append(up, l.Name+" is up")
		case l.State == v1.LinkUp && ok && created[l.Name]:
			restored = append(restored, l.Name+" was missing and was created again")
		case l.State != v1.LinkUp && (old.State != l.State || old.Error != l.Error):
			failed = append(failed, l.Name+": "+orDefault(l.Error))
		}
	}
	for _, r := range after.Refused {
		if refused[r.Network] != r.Error {
			rejected = append(rejected, r.Network+": "+r.Error)
		}
	}
	opened, closed := isolationChanges(before, after)
	var all []LinkEvent
	for _, n := range []struct {
		reason  string
		warning bool
		lines   []string
	}{
		{v1.ReasonNotIsolated, true, opened}, {v1.ReasonLinkFailed, true, failed}, {v1.ReasonNetworkRefused, true, rejected},
		{v1.ReasonLinkRestored, true, restored}, {v1.ReasonLinkUp, false, up}, {v1.ReasonIsolated, false, closed},
	} {
		if len(n.lines) > 0 {
			all = append(all, LinkEvent{Reason: n.reason, Warning: n.warning, Message: firstAndCount(n.lines)})
		}
	}
	return all
}

// isolationChanges returns the message of the condition Isolated if it became false, or true.
func isolationChanges(before, after *v1.NodeNetworkStatus) (opened, closed []string) {
	current := meta.FindStatusCondition(after.Conditions, ConditionIsolated)
	var old *metav1.Condition
	if before != nil {
		old = meta.FindStatusCondition(before.Conditions, ConditionIsolated)
	}
	switch {
	case current == nil:
	case current.Status == metav1.ConditionFalse && (old == nil || old.Message != current.Message):
		opened = []string{current.Message}
	case current.Status == metav1.ConditionTrue && old != nil && old.Status == metav1.ConditionFalse:
		closed = []string{current.Message}
	}
	return opened, closed
}

// restoredLinks returns the names of links that were created and not deleted by the same changes:
// the Reconciler itself deleted the others.
func restoredLinks(changes []Change) map[string]bool {
	created := map[string]bool{}
	for i := range changes {
		if changes[i].Op == OpCreate {
			created[changes[i].Link.Name] = true
		}
	}
	for i := range changes {
		if changes[i].Op == OpDelete {
			delete(created, changes[i].Link.Name)
		}
	}
	return created
}

func orDefault(text string) string {
	if text == "" {
		return "it is down"
	}
	return text
}

func firstAndCount(lines []string) string {
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (and %d more)", lines[0], len(lines)-1)
}
