// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// newHostileBench is a bench whose agent checks nothing.
func newHostileBench(t *testing.T, agent http.HandlerFunc) *httptest.Server {
	t.Helper()
	agentEnd, hubEnd := tcpPair(t)
	session, err := NewSession(t.Context(), hubEnd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	go func() { _ = Serve(t.Context(), agentEnd, agent) }()
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &Recorder{ResponseWriter: w}
		err := session.Forward(answer, r, r.URL.Path, RequestHeader(r.Header))
		if err != nil && answer.Code == 0 {
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(hub.Close)
	return hub
}

// Nothing but a final answer reaches a client, whatever a stolen agent answers.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	agent := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		switch r.URL.Path {
		case "/abort":
			w.WriteHeader(http.StatusEarlyHints)
			panic(http.ErrAbortHandler)
		case "/redirect":
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Location", "http://evil.example/")
			w.WriteHeader(http.StatusFound)
		case "/switch":
			w.WriteHeader(http.StatusSwitchingProtocols)
			_, _ = io.WriteString(w, "body")
		case "/trailer":
			w.Header().Set("Trailer", "X-Announced")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Announced", "a")
			w.Header().Set(http.TrailerPrefix+"X-Late", "b")
		case "/stranger":
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		case "/code":
			w.WriteHeader(999)
		case "/large":
			w.Header().Set("ETag", strings.Repeat("x", 2*MaxHeaderBytes))
		case "/flood":
			w.Header().Set("X-Large", strings.Repeat("x", 1000))
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}
	}
	cases := map[string]struct {
		reason, path string
		code         int
	}{
		"Abort":    {"an answer that fails after an interim one is an error, not an empty 200", "/abort", 503},
		"Redirect": {"an interim answer does not keep the check from writing its error", "/redirect", 503},
		"Switch":   {"only an upgraded exchange has 101", "/switch", 200},
		"Trailer":  {"trailers pass no check", "/trailer", 200},
		"Stranger": {"a client would ask its user for another credential", "/stranger", 503},
		"Code":     {"HTTP defines no such code", "/code", 503},
		"Large":    {"headers of megabytes fill the hub's memory", "/large", 503},
		"Flood":    {"interim answers are limited", "/flood", 503},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newHostileBench(t, agent)
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				t.Errorf("%s: the client got the interim answer %d %v", tc.reason, code, h)
				return errors.New("end")
			}}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, hub.URL+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := hub.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != tc.code || len(response.Trailer) > 0 || response.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s: got %d, %v, header %v, trailer %v", tc.reason, response.StatusCode, err, response.Header, response.Trailer)
			}
		})
	}
}

// A workload's headers do not end the connection.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header()["Vary"] = slices.Repeat([]string{""}, MaxHeaderBytes/10)
		}
	}))
	large := b.get(t.Context(), t, "/large")
	defer large.Body.Close()
	if large.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s, want %d", large.Status, http.StatusBadGateway)
	}
	next := b.get(t.Context(), t, "/ping")
	defer next.Body.Close()
	if next.StatusCode != http.StatusOK {
		t.Errorf("the next request got %s", next.Status)
	}
	select {
	case <-b.session.Closed():
		t.Error("the session ended")
	default:
	}
}

// A workload that answers 103 for ever, to a client that reads nothing, does not stop other requests.
func TestInterimFlood(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/flood" {
			_, _ = io.WriteString(w, "pong")
			return
		}
		defer close(ended)
		w.Header().Set("X-Large", strings.Repeat("x", 8000))
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
		}
	}))
	defer b.send(t, "GET /east/flood HTTP/1.1\r\nHost: hub\r\n\r\n").Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	select {
	case <-ended: // the request has failed
	case <-ctx.Done():
		t.Fatal("the interim answers have no limit")
	}
	next := b.get(ctx, t, "/ping")
	defer next.Body.Close()
	if text, err := io.ReadAll(next.Body); err != nil || string(text) != "pong" {
		t.Errorf("got %q, %v", text, err)
	}
}
