// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
)

func TestCleanedUp(t *testing.T) {
	t.Parallel()
	link := v1.HostLink{Name: "a.5", Identity: "vlan/ens4/5", State: v1.LinkChangePending}
	nic := v1.HostLink{Name: "ens4", Identity: "nic/ens4"}
	for name, tc := range map[string]struct {
		why              string
		links            []v1.HostLink
		outcome          install.Outcome
		sandboxes        int
		failed, released error
		status           metav1.ConditionStatus
		reason, message  string
	}{
		"Removed":      {"Nothing is left.", nil, install.Removed, 0, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed"},
		"Attached":     {"Pods keep their interfaces.", []v1.HostLink{link, nic}, install.PluginKept, 2, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUpUnderPods, "CNI configuration removed; plugin kept for the Pods that are attached; 2 sandboxes keep their interfaces; link a.5 kept for the Pods on it"},
		"NodeConfig":   {"Patchbay gave these Pods no interface.", nil, install.PluginKept, 0, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed; plugin kept for the Pods that are attached"},
		"NotInstalled": {"Somebody else manages the files.", nil, install.Kept, 0, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration not removed, because the daemon has not installed it (--install=false)"},
		"Addresses":    {"The next daemon of the node takes them over.", nil, install.Removed, 0, nil, errors.New("timeout"), metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed; pre-allocated addresses not returned: timeout"},
		"Failed":       {"New Pods would still come to the plugin.", nil, install.Kept, 0, errors.Join(errors.New("read-only"), errors.New("busy")), nil, metav1.ConditionFalse, v1alpha1.ReasonCleanUpFailed, "read-only; busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := cleanedUp(tc.links, tc.outcome, tc.sandboxes, tc.failed, tc.released)
			if got.Type != v1alpha1.ConditionCleanedUp || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("%s\ngot %+v\nwant %s, %s, %s", tc.why, got, tc.status, tc.reason, tc.message)
			}
		})
	}
}

// An API server that restarts while all daemons stop must not leave a node without a report.
func TestReportCleanUpTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures, reports := 3, 0
		i := &installation{report: func(context.Context, []v1.HostLink, metav1.Condition) error {
			if reports++; reports <= failures {
				return errors.New("connection refused")
			}
			return nil
		}}
		if err := i.reportCleanUp(t.Context(), nil, metav1.Condition{}); err != nil || reports != failures+1 {
			t.Errorf("got %v after %d attempts, want the attempt %d to count", err, reports, failures+1)
		}
		failures = 1000
		if err := i.reportCleanUp(t.Context(), nil, metav1.Condition{}); err == nil {
			t.Error("got no error from an API server that never answers")
		}
	})
}
