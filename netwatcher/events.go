// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Reasons of News.
const (
	// ReasonLinkFailed: links are not as they should be.
	ReasonLinkFailed = "LinkFailed"
	// ReasonLinkUp: links are as they should be again.
	ReasonLinkUp = "LinkUp"
	// ReasonLinkRestored: somebody had removed links, and they are there again.
	ReasonLinkRestored = "LinkRestored"
	// ReasonNetworkRefused: a network gets no link on this node.
	ReasonNetworkRefused = "NetworkRefused"
	// ReasonNotIsolated: strangers can send into the node's VXLANs.
	ReasonNotIsolated = "NotIsolated"
	// ReasonIsolated: they no longer can.
	ReasonIsolated = "Isolated"
)

// LinkEvent is what got better or worse on a node: at most one of each reason in a round,
// however many links it is about.
type LinkEvent struct {
	// Reason is one of the above.
	Reason string
	// Warning says that it got worse.
	Warning bool
	// Message names the first link or network, and how many more there are.
	Message string
}

// linkEvents compares two rounds. What is wrong from the start is news, what is right is
// not. Changes are the steps of the later round.
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
	made := restoredLinks(changes)
	var failed, up, restored, no []string
	for _, l := range after.Links {
		old, ok := known[l.Name]
		switch {
		case l.State == v1.LinkUp && ok && old.State != v1.LinkUp:
			up = append(up, l.Name+" is up")
		case l.State == v1.LinkUp && ok && made[l.Name]:
			restored = append(restored, l.Name+" was gone, and was made again")
		case l.State != v1.LinkUp && (old.State != l.State || old.Error != l.Error):
			failed = append(failed, l.Name+": "+orDefault(l.Error))
		}
	}
	for _, r := range after.Refused {
		if refused[r.Network] != r.Error {
			no = append(no, r.Network+": "+r.Error)
		}
	}
	open, shut := isolationChanges(before, after)
	var all []LinkEvent
	for _, n := range []struct {
		reason  string
		warning bool
		lines   []string
	}{
		{ReasonNotIsolated, true, open}, {ReasonLinkFailed, true, failed}, {ReasonNetworkRefused, true, no},
		{ReasonLinkRestored, true, restored}, {ReasonLinkUp, false, up}, {ReasonIsolated, false, shut},
	} {
		if len(n.lines) > 0 {
			all = append(all, LinkEvent{Reason: n.reason, Warning: n.warning, Message: firstAndCount(n.lines)})
		}
	}
	return all
}

// isolationChanges compares the condition Isolated.
func isolationChanges(before, after *v1.NodeNetworkStatus) (open, shut []string) {
	now := meta.FindStatusCondition(after.Conditions, ConditionIsolated)
	var old *metav1.Condition
	if before != nil {
		old = meta.FindStatusCondition(before.Conditions, ConditionIsolated)
	}
	switch {
	case now == nil:
	case now.Status == metav1.ConditionFalse && (old == nil || old.Message != now.Message):
		open = []string{now.Message}
	case now.Status == metav1.ConditionTrue && old != nil && old.Status == metav1.ConditionFalse:
		shut = []string{now.Message}
	}
	return open, shut
}

// restoredLinks are the names of links that were made without being removed in the same
// round: that was no one else's doing.
func restoredLinks(changes []Change) map[string]bool {
	made := map[string]bool{}
	for i := range changes {
		if changes[i].Op == OpCreate {
			made[changes[i].Link.Name] = true
		}
	}
	for i := range changes {
		if changes[i].Op == OpDelete {
			delete(made, changes[i].Link.Name)
		}
	}
	return made
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
