// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthHandler(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		path   string
		ready  error
		want   int
		text   string
	}{
		"Alive":    {reason: "A program that is not ready must not be restarted.", path: "/healthz", ready: errors.New("starting"), want: http.StatusOK, text: "ok"},
		"Ready":    {reason: "The Service may send requests.", path: "/readyz", want: http.StatusOK, text: "ok"},
		"NotReady": {reason: "The answer names what the program waits for.", path: "/readyz", ready: errors.New("starting"), want: http.StatusServiceUnavailable, text: "starting"},
		"Metrics":  {reason: "Metrics are served behind authentication at another port.", path: "/metrics", want: http.StatusNotFound},
		"Profiles": {reason: "Nothing else is served.", path: "/debug/pprof/", want: http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			HealthHandler(func(context.Context) error { return tc.ready }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if w.Code != tc.want || !strings.Contains(w.Body.String(), tc.text) {
				t.Errorf("%s: GET %s answers %d %q, want %d %q", tc.reason, tc.path, w.Code, w.Body, tc.want, tc.text)
			}
		})
	}
}

func TestCheckSynced(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{true, false} {
		err := CheckSynced(t.Context(), func(context.Context) bool { return synced })
		if (err == nil) != synced {
			t.Errorf("synced %t: got %v", synced, err)
		}
	}
}

// The server answers until its context ends, and then Start returns without an error.
func TestHealthServerStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s, err := ListenHealth("127.0.0.1:0", func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Listener.Addr().String()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || string(text) != "ok\n" {
		t.Errorf("got %s %q", answer.Status, text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start returned %v", err)
	}
}

func TestListenHealthNamesTheFlag(t *testing.T) {
	t.Parallel()
	if _, err := ListenHealth("127.0.0.1", nil); err == nil || !strings.Contains(err.Error(), "flag --health-address") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
