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

// Any Pod reaches its node. The daemon, with its own rights, has the API server say who may
// read its metrics: neither a Pod without a token, nor one with the token that every Pod has.
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
		{"Prometheus has the role", n.scraper, "/metrics", http.StatusOK},
		{"no token", n.scraper.Anonymous(), "/metrics", http.StatusUnauthorized},
		{"a token without the role", anyPod, "/metrics", http.StatusForbidden},
		{"profiles are not in the role", n.scraper, "/debug/pprof/heap", http.StatusForbidden},
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
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		res, err := http.Get("http://" + n.http + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s at the address of health checks: got %s, want 404", path, res.Status)
		}
	}
}
