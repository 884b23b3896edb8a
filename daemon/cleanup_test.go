// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

func TestCleanedUp(t *testing.T) {
	t.Parallel()
	link := v1.HostLink{Name: "a.5", Identity: "vlan/ens4/5", State: v1.LinkChangePending}
	nic := v1.HostLink{Name: "ens4", Identity: "nic/ens4"}
	for name, tc := range map[string]struct {
		why              string
		links            []v1.HostLink
		outcome          install.Outcome
		attached         []string
		failed, released error
		status           metav1.ConditionStatus
		reason, message  string
	}{
		"Removed":      {"Nothing is left.", nil, install.Removed, nil, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed"},
		"Attached":     {"Pods keep their interfaces.", []v1.HostLink{link, nic}, install.PluginKept, []string{"shop/db", "shop/web"}, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUpUnderPods, "CNI configuration removed; plugin kept for the Pods that are attached; 2 sandboxes keep their interfaces: shop/db, shop/web; link a.5 kept for the Pods on it"},
		"NodeConfig":   {"Patchbay gave these Pods no interface.", nil, install.PluginKept, nil, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed; plugin kept for the Pods that are attached"},
		"NotInstalled": {"An administrator manages the files.", nil, install.Kept, nil, nil, nil, metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration not removed, because the daemon has not installed it (--install=false)"},
		"Addresses":    {"The next daemon of the node takes them over.", nil, install.Removed, nil, nil, errors.New("timeout"), metav1.ConditionTrue, v1alpha1.ReasonCleanedUp, "CNI configuration removed; pre-allocated addresses not returned: timeout"},
		"Failed":       {"New Pods would still come to the plugin.", nil, install.Kept, nil, errors.Join(errors.New("read-only"), errors.New("busy")), nil, metav1.ConditionFalse, v1alpha1.ReasonCleanUpFailed, "read-only; busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := cleanedUp(tc.links, tc.outcome, tc.attached, tc.failed, tc.released)
			if got.Type != v1alpha1.ConditionCleanedUp || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("%s\ngot %+v\nwant %s, %s, %s", tc.why, got, tc.status, tc.reason, tc.message)
			}
		})
	}
}

// brokenKernel has one link of Patchbay, and cannot read which links are in use.
type brokenKernel struct {
	netwatcher.Kernel

	usage error
}

// State implements netwatcher.Kernel.
func (*brokenKernel) State(context.Context) (*netwatcher.State, error) {
	spec := netwatcher.Spec{Name: "a.5", Identity: network.Link{Device: "ens4", VLAN: 5}}
	return &netwatcher.State{Links: []netwatcher.ObservedLink{{Spec: spec, Managed: true, Up: true}}}, nil
}

// LinksInUse implements netwatcher.Kernel.
func (k *brokenKernel) LinksInUse(context.Context) (map[string]bool, error) {
	return map[string]bool{"a.5": true}, k.usage
}

// noFilters has nothing to filter.
type noFilters struct{}

// Apply implements netwatcher.Firewall.
func (noFilters) Apply(context.Context, netwatcher.VXLANFilter) (bool, error) { return false, nil }

// noGuard has nothing to guard.
type noGuard struct{}

// Apply implements netwatcher.SourceGuard.
func (noGuard) Apply(context.Context, []netwatcher.GuardedLink) (bool, error) { return false, nil }

// noPods are the links of no Pod.
type noPods struct{}

// Links implements netwatcher.PodLinks.
func (noPods) Links() (map[network.Link]bool, error) { return nil, nil }

// A link that stays because Pods use it is no failure. A link that stays because the daemon could not read its use is one.
func TestRemoveLinksInUse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		usage  error
		want   string
	}{
		"InUse":   {"A Pod uses the link.", nil, ""},
		"Unknown": {"The link may be unused, and an administrator has to look.", errors.New("timeout"), "read which host links are in use, so that none was removed: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := netwatcher.Config{Kernel: &brokenKernel{usage: tc.usage}, Firewall: noFilters{}, SourceGuard: noGuard{}, Pods: noPods{}, Log: logr.Discard()}
			links, err := removeLinks(t.Context(), c)
			if len(links) != 1 || tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("%s Got %+v, %v, want one link and %q", tc.reason, links, err, tc.want)
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
