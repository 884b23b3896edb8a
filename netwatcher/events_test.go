// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestLinkEvents(t *testing.T) {
	t.Parallel()
	status := func(links ...v1.HostLink) *v1.NodeNetworkStatus { return &v1.NodeNetworkStatus{Links: links} }
	good := func(name string) v1.HostLink { return v1.HostLink{Name: name, State: v1.LinkUp} }
	bad := func(name, why string) v1.HostLink {
		return v1.HostLink{Name: name, State: v1.LinkError, Error: why}
	}
	refused := &v1.NodeNetworkStatus{Refused: []v1.RefusedNetwork{{Network: "DanmNet/a/b", Error: "taken"}}}
	created := []Change{{Op: OpCreate, Link: vlanLink("a.1", "ens4", 1, 1500)}}
	isolated := func(status metav1.ConditionStatus, message string) *v1.NodeNetworkStatus {
		return &v1.NodeNetworkStatus{Conditions: []metav1.Condition{{Type: ConditionIsolated, Status: status, Message: message}}}
	}
	notIsolated, isIsolated := isolated(metav1.ConditionFalse, "no nf_tables"), isolated(metav1.ConditionTrue, "filtered")
	cases := map[string]struct {
		reason        string
		before, after *v1.NodeNetworkStatus
		changes       []Change
		want          []LinkEvent
	}{
		"New":           {reason: "A new link is no Event.", before: status(), after: status(good("a.1")), changes: created},
		"FirstUp":       {reason: "A link that is up at the start is no Event.", after: status(good("a.1"))},
		"FirstFailure":  {reason: "A failure at the start is an Event.", after: status(bad("a.1", "no NIC")), want: []LinkEvent{{v1.ReasonLinkFailed, true, "a.1: no NIC"}}},
		"StillFailing":  {reason: "The failure was reported before.", before: status(bad("a.1", "no NIC")), after: status(bad("a.1", "no NIC"))},
		"OtherFailure":  {reason: "Another cause is another Event.", before: status(bad("a.1", "no NIC")), after: status(bad("a.1", "busy")), want: []LinkEvent{{v1.ReasonLinkFailed, true, "a.1: busy"}}},
		"Down":          {reason: "The link is down without an error.", before: status(good("a.1")), after: status(v1.HostLink{Name: "a.1", State: v1.LinkDown}), want: []LinkEvent{{v1.ReasonLinkFailed, true, "a.1: it is down"}}},
		"Resolved":      {reason: "The end of a failure is an Event.", before: status(bad("a.1", "no NIC")), after: status(good("a.1")), changes: created, want: []LinkEvent{{v1.ReasonLinkUp, false, "a.1 is up"}}},
		"Restored":      {reason: "A user deleted the link.", before: status(good("a.1")), after: status(good("a.1")), changes: created, want: []LinkEvent{{v1.ReasonLinkRestored, true, "a.1 was missing and was created again"}}},
		"Recreated":     {reason: "The Reconciler itself deleted the link.", before: status(good("a.1")), after: status(good("a.1")), changes: append([]Change{{Op: OpDelete, Link: created[0].Link}}, created...)},
		"Many":          {reason: "All links that fail together are one Event.", before: status(), after: status(bad("a.1", "no NIC"), bad("b.2", "no NIC"), bad("c.3", "no NIC")), want: []LinkEvent{{v1.ReasonLinkFailed, true, "a.1: no NIC (and 2 more)"}}},
		"Refused":       {reason: "The network's owner must change it.", before: status(), after: refused, want: []LinkEvent{{v1.ReasonNetworkRefused, true, "DanmNet/a/b: taken"}}},
		"NotIsolated":   {reason: "The node is not isolated from the start.", after: notIsolated, want: []LinkEvent{{v1.ReasonNotIsolated, true, "no nf_tables"}}},
		"StillOpen":     {reason: "The condition was reported before.", before: notIsolated, after: notIsolated},
		"Isolated":      {reason: "The end of the condition is an Event.", before: notIsolated, after: isIsolated, want: []LinkEvent{{v1.ReasonIsolated, false, "filtered"}}},
		"FirstIsolated": {reason: "A node that is isolated at the start is no Event.", after: isIsolated},
		"StillRefused":  {reason: "The network was reported before.", before: refused, after: refused},
		"Gone":          {reason: "The network was deleted.", before: status(bad("a.1", "x")), after: status()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, linkEvents(tc.before, tc.after, tc.changes)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
