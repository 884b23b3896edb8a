// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Only clients that know the webhook configurations are answered.
func TestRequireToken(t *testing.T) {
	t.Parallel()
	a, newReplica := newWorld()
	url := "https://127.0.0.1:9443"
	a.hooks.Webhooks[0].Name, a.hooks.Webhooks[1].Name = "pods.danm.io", "pods.danm.io"
	a.hooks.Webhooks[0].ClientConfig.Service = &admissionv1.ServiceReference{}
	a.hooks.Webhooks[1].ClientConfig.URL = &url
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rotator := newReplica(&now)
	guarded := rotator.RequireToken(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(path string) int {
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		return w.Code
	}
	if got := ask("/pods.danm.io/"); got != http.StatusForbidden {
		t.Errorf("before there is a token: got %d", got)
	}
	for range 2 { // the second sync changes nothing
		if err := rotator.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	injected := *a.hooks.Webhooks[0].ClientConfig.Service.Path
	if want := "https://127.0.0.1:9443" + injected; *a.hooks.Webhooks[1].ClientConfig.URL != want {
		t.Errorf("URL: got %s, want %s", *a.hooks.Webhooks[1].ClientConfig.URL, want)
	}
	for path, want := range map[string]int{
		injected: http.StatusOK, "/pods.danm.io": http.StatusForbidden, "/pods.danm.io/": http.StatusForbidden,
		"/pods.danm.io/0123456789abcdef0123456789abcdef": http.StatusForbidden,
	} {
		if got := ask(path); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}
