// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/app"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		path        string
		synced      bool
		noAdmission bool
		want        int
	}{
		"Alive":       {reason: "A restart does not bring the API server back.", path: "/healthz", want: http.StatusOK},
		"NotSynced":   {reason: "A rollout waits for filled caches.", path: "/readyz", want: http.StatusServiceUnavailable},
		"Ready":       {reason: "The replica could lead at once.", path: "/readyz", synced: true, want: http.StatusOK},
		"NoAdmission": {reason: "The Service must not lead to a replica whose webhooks do not answer.", path: "/readyz", synced: true, noAdmission: true, want: http.StatusServiceUnavailable},
		"Metrics":     {reason: "Metrics are served behind authentication at another port.", path: "/metrics", want: http.StatusNotFound},
		"Profiles":    {reason: "Nothing else is served.", path: "/debug/pprof/", want: http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			h := app.HealthHandler(readyCheck(func(context.Context) bool { return tc.synced }, func() error {
				if tc.noAdmission {
					return errors.New("no certificate")
				}
				return nil
			}))
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if w.Code != tc.want {
				t.Errorf("%s: %s answers %d, want %d", tc.reason, tc.path, w.Code, tc.want)
			}
		})
	}
}
