// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status and reason tell an alert what the message tells a person.
func TestReasonsOfReady(t *testing.T) {
	t.Parallel()
	up := &nodeReport{up: map[string]bool{"lan": true}}
	down := &nodeReport{problems: map[string]string{"lan": "ens5: NIC not found on this node"}}
	cases := map[string]struct {
		reason string
		nodes  map[string]*nodeReport
		status metav1.ConditionStatus
		want   string
	}{
		"NoNode":    {"Without a report nothing is known, which is not the same as down.", nil, metav1.ConditionUnknown, "NoNodeReports"},
		"AllUp":     {"The link is up on each node.", map[string]*nodeReport{"a": up, "b": up}, metav1.ConditionTrue, "LinksUp"},
		"OneDown":   {"A Pod may be scheduled to that node.", map[string]*nodeReport{"a": up, "b": down}, metav1.ConditionFalse, "LinksNotUp"},
		"OneSilent": {"The report of a new node may be older than the network.", map[string]*nodeReport{"a": up, "b": {}}, metav1.ConditionFalse, "LinksNotUp"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c := readyCondition("lan", needs{Link: true}, tc.nodes); c.Status != tc.status || c.Reason != tc.want || c.Message == "" {
				t.Errorf("%s: got %+v, want %s with reason %s", tc.reason, c, tc.status, tc.want)
			}
		})
	}
}
