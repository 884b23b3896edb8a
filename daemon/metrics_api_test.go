// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Each Pod can reach its node. The daemon asks the API server to authenticate and authorize the readers
// of its metrics. A Pod without a token, or with the default token of Pods, gets no metrics.
func TestMetricsAreForReaders(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "any"}}
	if err := env.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	anyPod, err := env.ScraperOf(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	n.args = append(n.args, "--profiles")
	n.start()
	n.awaitReady()
	cases := []struct {
		reason  string
		scraper *apitest.Scraper
		path    string
		want    int
	}{
		{"Prometheus has the role.", n.scraper, "/metrics", http.StatusOK},
		{"The request has no token.", n.scraper.Anonymous(), "/metrics", http.StatusUnauthorized},
		{"The token has no role.", anyPod, "/metrics", http.StatusForbidden},
		{"The role does not include profiles.", n.scraper, "/debug/pprof/heap", http.StatusForbidden},
	}
	for _, tc := range cases {
		eventually(t, tc.reason, func(ctx context.Context) error {
			text, status, err := tc.scraper.Get(ctx, n.metrics, tc.path)
			if err == nil && status != tc.want {
				err = fmt.Errorf("%s: got status %d, want %d: %s", tc.path, status, tc.want, text)
			}
			return err
		})
	}
	text, err := n.scraper.Metrics(t.Context(), n.metrics)
	if err == nil {
		err = apitest.CheckMetricsPage("patchbayd", text)
	}
	if err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		res, err := http.Get("http://" + n.http + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s at the address of the health checks: got %s, want 404", path, res.Status)
		}
	}
}
