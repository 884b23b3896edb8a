// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		path   string
		synced bool
		mute   bool
		want   int
	}{
		"Alive":    {reason: "a restart does not bring the API server back", path: "/healthz", want: http.StatusOK},
		"NotReady": {reason: "a rollout waits for filled caches", path: "/readyz", want: http.StatusServiceUnavailable},
		"Ready":    {reason: "it could lead at once", path: "/readyz", synced: true, want: http.StatusOK},
		"Mute":     {reason: "the Service must not lead to who does not answer", path: "/readyz", synced: true, mute: true, want: http.StatusServiceUnavailable},
		"Metrics":  {reason: "only behind authentication, at another port", path: "/metrics", want: http.StatusNotFound},
		"Else":     {reason: "nothing else is served", path: "/debug/pprof/", want: http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			h := healthHandler(func(context.Context) bool { return tc.synced }, func() error {
				if tc.mute {
					return errors.New("mute")
				}
				return nil
			})
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if w.Code != tc.want {
				t.Errorf("%s: %s answers %d, want %d", tc.reason, tc.path, w.Code, tc.want)
			}
		})
	}
}
