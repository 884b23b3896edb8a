// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
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
)

// News is what got better or worse on a node: at most one of each reason in a round,
// however many links it is about.
type News struct {
	// Reason is one of the above.
	Reason string
	// Warning says that it got worse.
	Warning bool
	// Message names the first link or network, and how many more there are.
	Message string
}

// newsOf compares two rounds. What is wrong from the start is news, what is right is
// not. Changes are the steps of the later round.
func newsOf(before, after *v1.NodeNetworkStatus, changes []Change) []News {
	known, refused := map[string]v1.HostLink{}, map[string]string{}
	if before != nil {
		for _, l := range before.Links {
			known[l.Name] = l
		}
		for _, r := range before.Refused {
			refused[r.Network] = r.Error
		}
	}
	made := restoredBy(changes)
	var failed, up, restored, no []string
	for _, l := range after.Links {
		old, ok := known[l.Name]
		switch {
		case l.State == v1.LinkUp && ok && old.State != v1.LinkUp:
			up = append(up, l.Name+" is up")
		case l.State == v1.LinkUp && ok && made[l.Name]:
			restored = append(restored, l.Name+" was gone, and was made again")
		case l.State != v1.LinkUp && (old.State != l.State || old.Error != l.Error):
			failed = append(failed, l.Name+": "+orDown(l.Error))
		}
	}
	for _, r := range after.Refused {
		if refused[r.Network] != r.Error {
			no = append(no, r.Network+": "+r.Error)
		}
	}
	var all []News
	for _, n := range []struct {
		reason  string
		warning bool
		lines   []string
	}{
		{ReasonLinkFailed, true, failed}, {ReasonNetworkRefused, true, no},
		{ReasonLinkRestored, true, restored}, {ReasonLinkUp, false, up},
	} {
		if len(n.lines) > 0 {
			all = append(all, News{Reason: n.reason, Warning: n.warning, Message: andMore(n.lines)})
		}
	}
	return all
}

// restoredBy are the names of links that were made without being removed in the same
// round: that was no one else's doing.
func restoredBy(changes []Change) map[string]bool {
	made := map[string]bool{}
	for i := range changes {
		if changes[i].Op == Create {
			made[changes[i].Link.Name] = true
		}
	}
	for i := range changes {
		if changes[i].Op == Delete {
			delete(made, changes[i].Link.Name)
		}
	}
	return made
}

func orDown(text string) string {
	if text == "" {
		return "it is down"
	}
	return text
}

func andMore(lines []string) string {
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (and %d more)", lines[0], len(lines)-1)
}
