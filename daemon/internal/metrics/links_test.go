// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// A failed reconciliation leaves the metrics of the last status.
func TestLinks(t *testing.T) {
	t.Parallel()
	m := newTestMetrics()
	l := m.Links
	l.ObserveStep(netwatcher.OpCreate, nil)
	l.ObserveStep(netwatcher.OpCreate, errors.New("busy"))
	l.ObserveReconcile(time.Millisecond, nil, &v1.NodeNetworkStatus{
		NICs: []v1.NIC{
			{Name: "ens3"},
			{Name: "ens4", SRIOV: &v1.SRIOVFunctions{Functions: []v1.VirtualFunction{
				{Address: "0000:03:10.0"}, {Address: "0000:03:10.2"}, {Address: "0000:03:10.4"},
			}}},
			{Name: "ens5", SRIOV: &v1.SRIOVFunctions{TotalVFs: 7}},
		},
		Links:      []v1.HostLink{{State: v1.LinkUp}, {State: v1.LinkUp}, {State: v1.LinkChangePending}},
		Refused:    []v1.RefusedNetwork{{}},
		Conditions: []metav1.Condition{{Type: netwatcher.ConditionIsolated, Status: metav1.ConditionTrue}},
	})
	l.ObserveReconcile(time.Millisecond, errors.New("the kernel does not answer"), nil)
	text := m.scrape()
	for _, want := range []string{
		`patchbay_host_link_changes_total{op="create",result="error"} 1`,
		`patchbay_host_link_changes_total{op="create",result="ok"} 1`,
		`patchbay_host_links{state="Up"} 2`, `patchbay_host_links{state="ChangePending"} 1`, `patchbay_host_links{state="Error"} 0`,
		`patchbay_host_networks_refused 1`, `patchbay_host_isolated 1`,
		`patchbay_vxlan_packets_dropped_total{where="received"} 7`, `patchbay_vxlan_packets_dropped_total{where="forwarded"} 0`,
		`patchbay_sriov_functions{parent="ens4",state="attached"} 2`, `patchbay_sriov_functions{parent="ens4",state="free"} 1`,
		`patchbay_sriov_functions{parent="ens5",state="attached"} 0`, `patchbay_sriov_functions{parent="ens5",state="free"} 0`,
		`patchbay_host_links_reconcile_duration_seconds_count{result="error"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
}
