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
	no := &v1.NodeNetworkStatus{Refused: []v1.RefusedNetwork{{Network: "DanmNet/a/b", Error: "taken"}}}
	created := []Change{{Op: OpCreate, Link: vlanLink("a.1", "ens4", 1, 1500)}}
	isolated := func(status metav1.ConditionStatus, message string) *v1.NodeNetworkStatus {
		return &v1.NodeNetworkStatus{Conditions: []metav1.Condition{{Type: ConditionIsolated, Status: status, Message: message}}}
	}
	open, shut := isolated(metav1.ConditionFalse, "no nf_tables"), isolated(metav1.ConditionTrue, "filtered")
	cases := map[string]struct {
		reason        string
		before, after *v1.NodeNetworkStatus
		changes       []Change
		want          []LinkEvent
	}{
		"New":          {reason: "a link that is made is what was asked for", before: status(), after: status(good("a.1")), changes: created},
		"FirstRound":   {reason: "all is well, as expected", after: status(good("a.1"))},
		"FirstFailure": {reason: "it was never well", after: status(bad("a.1", "no NIC")), want: []LinkEvent{{ReasonLinkFailed, true, "a.1: no NIC"}}},
		"StillFailing": {reason: "that is known", before: status(bad("a.1", "no NIC")), after: status(bad("a.1", "no NIC"))},
		"OtherFailure": {reason: "another cause asks for another remedy", before: status(bad("a.1", "no NIC")), after: status(bad("a.1", "busy")), want: []LinkEvent{{ReasonLinkFailed, true, "a.1: busy"}}},
		"Down":         {reason: "without a cause", before: status(good("a.1")), after: status(v1.HostLink{Name: "a.1", State: v1.LinkDown}), want: []LinkEvent{{ReasonLinkFailed, true, "a.1: it is down"}}},
		"Mended":       {reason: "the alarm ends", before: status(bad("a.1", "no NIC")), after: status(good("a.1")), changes: created, want: []LinkEvent{{ReasonLinkUp, false, "a.1 is up"}}},
		"Restored":     {reason: "somebody removes links by hand", before: status(good("a.1")), after: status(good("a.1")), changes: created, want: []LinkEvent{{ReasonLinkRestored, true, "a.1 was gone, and was made again"}}},
		"OwnDoing":     {reason: "it had to be made anew, and nobody else removed it", before: status(good("a.1")), after: status(good("a.1")), changes: append([]Change{{Op: OpDelete, Link: created[0].Link}}, created...)},
		"Many":         {reason: "a NIC with a thousand VLANs is one Event", before: status(), after: status(bad("a.1", "no NIC"), bad("b.2", "no NIC"), bad("c.3", "no NIC")), want: []LinkEvent{{ReasonLinkFailed, true, "a.1: no NIC (and 2 more)"}}},
		"Refused":      {reason: "the network's owner is to act", before: status(), after: no, want: []LinkEvent{{ReasonNetworkRefused, true, "DanmNet/a/b: taken"}}},
		"Open":         {reason: "strangers get in", after: open, want: []LinkEvent{{ReasonNotIsolated, true, "no nf_tables"}}},
		"OpenStill":    {reason: "that is known", before: open, after: open},
		"Shut":         {reason: "the alarm ends", before: open, after: shut, want: []LinkEvent{{ReasonIsolated, false, "filtered"}}},
		"ShutAtFirst":  {reason: "all is well, as expected", after: shut},
		"RefusedStill": {reason: "that is known", before: no, after: no},
		"Gone":         {reason: "a network was deleted", before: status(bad("a.1", "x")), after: status()},
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
