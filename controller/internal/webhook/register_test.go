// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A request in progress at shutdown is answered within a limit.
func TestFinishOnShutdown(t *testing.T) {
	t.Parallel()
	server, stop := context.WithCancel(t.Context())
	answered := false
	h := finishOnShutdown(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stop()
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request's context has ended with the server's: %v", err)
		}
		if end, ok := r.Context().Deadline(); !ok || time.Until(end) > maxWebhookTimeout {
			t.Errorf("the request's deadline is %v (%t), want one within %v", end, ok, maxWebhookTimeout)
		}
		answered = true
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(server, http.MethodPost, "/", nil))
	if !answered {
		t.Error("the request did not reach its handler")
	}
}

// A request ends when the API server waits no longer for its answer.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, query string
		want          time.Duration
	}{
		"Sent":     {"The API server sends timeoutSeconds, or the rest of its own request's time.", "?timeout=3s", 3 * time.Second},
		"Missing":  {"Another client sends none.", "", maxWebhookTimeout},
		"Long":     {"A longer one than ours would delay the shutdown.", "?timeout=30s", maxWebhookTimeout},
		"Negative": {"It limits nothing.", "?timeout=-1s", maxWebhookTimeout},
		"Unknown":  {"It is not a duration.", "?timeout=soon", maxWebhookTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := requestTimeout(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+tc.query, nil)); got != tc.want {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
