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
