// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// fakeReporter is a KubeClient whose Events have one reason.
type fakeReporter struct{ attach.KubeClient }

// ReportFailure implements attach.KubeClient.
func (fakeReporter) ReportFailure(*corev1.Pod, error) string { return v1.ReasonNetworkNotFound }

// A name that users write into annotations is no label, unless the network exists: each of them would
// be a series for good.
func TestFailures(t *testing.T) {
	t.Parallel()
	m := newTestMetrics()
	f := m.Failures
	k := f.InstrumentKubeClient(fakeReporter{})
	for range 2 {
		if reason := k.ReportFailure(&corev1.Pod{}, attach.ErrNotFound); reason != v1.ReasonNetworkNotFound {
			t.Errorf("got reason %q, want that of the Event", reason)
		}
	}
	if want := `patchbay_attach_failures_total{kind="",name="",namespace="",reason="NetworkNotFound"} 2`; !strings.Contains(m.scrape(), want) {
		t.Errorf("missing %q in\n%s", want, m.scrape())
	}
	f.Forget(network.Ref{})
	if strings.Contains(m.scrape(), "patchbay_attach_failures_total") {
		t.Error("the values of a deleted network are still there")
	}
}
