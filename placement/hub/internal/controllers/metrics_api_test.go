// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The hub's metrics show which cluster reports, and where an object is and is not applied. Each of them
// is on the page of metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.cluster("metrics-a", v1alpha1.ClusterSpec{})
	h.idleCluster("metrics-b", v1alpha1.ClusterSpec{})
	ns := h.namespace("metrics")
	h.create(deployment(ns, "web", "metrics-a,metrics-b", 2))
	refused := deployment(ns, "odd", "metrics-a", 1)
	refused.Annotations[refuseKey] = "no"
	h.create(refused)
	h.expectMetrics(
		`patchbay_hub_cluster_condition{cluster="metrics-a",condition="Reachable",reason="HeartbeatReceived"} 1`,
		`patchbay_hub_cluster_last_heartbeat_timestamp_seconds{cluster="metrics-b"} `,
		`patchbay_hub_works{cluster="metrics-a",reason="",state="applied"} 1`,
		`patchbay_hub_works{cluster="metrics-a",reason="Invalid",state="blocked"} 1`,
		`patchbay_hub_works{cluster="metrics-b",reason="",state="pending"} 1`,
		`patchbay_hub_work_report_duration_seconds_count{result="applied"} `,
		`patchbay_objects{reason="",state="placed"} `,
		`patchbay_works_behind{cluster="metrics-a"} 0`,
		`patchbay_works_behind{cluster="metrics-b"} 1`,
		`patchbay_agent_lag_seconds{cluster="metrics-a"} `,
	)
	if err := apitest.CheckMetricsPage("patchbay-hub", scrape()); err != nil {
		t.Error(err)
	}
}

// expectMetrics waits until a scrape has lines with these beginnings.
func (h *testHub) expectMetrics(want ...string) {
	h.t.Helper()
	h.eventually("metrics", func(context.Context) error {
		text := scrape()
		for _, line := range want {
			if !strings.Contains(text, "\n"+line) {
				return fmt.Errorf("%w: %s is not in\n%s", errNotYet, line, text)
			}
		}
		return nil
	})
}

// scrape returns the metrics of the hub that all tests share.
func scrape() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(hubMetrics, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}
