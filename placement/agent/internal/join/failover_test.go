// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/placement/agent/internal/join"
)

// unreachable is an address without a listener.
const unreachable = "https://127.0.0.1:1"

// hub starts a server that answers with the host and the body of the request.
func hub(t *testing.T, code int) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "%s %s", r.Host, body) // the test compares what the client receives
	}))
	t.Cleanup(s.Close)
	return s
}

// client returns a function that sends a request as the agent does.
func client(t *testing.T, first string, further ...string) func(context.Context) (int, string, error) {
	t.Helper()
	config := &rest.Config{Host: first, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the servers are this test's own
	}}
	if err := join.AddAddresses(config, further); err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (int, string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, first+"/api", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	one, two, empty := hub(t, http.StatusOK), hub(t, http.StatusOK), hub(t, http.StatusBadGateway)
	good := func(s *httptest.Server) string { return "200 " + s.Listener.Addr().String() + " text" }
	cases := map[string]struct {
		reason    string
		addresses []string
		want      []string // answers to consecutive requests
	}{
		"One":     {"a single address is used again and again", []string{unreachable}, []string{"failed", "failed"}},
		"First":   {"the next address is used only when the first fails", []string{one.URL, two.URL}, []string{good(one), good(one)}},
		"Dead":    {"a request that was not sent is sent completely to the next address", []string{unreachable, two.URL}, []string{good(two), good(two)}},
		"DeadTwo": {"more than one address may be unreachable", []string{unreachable, unreachable + "1", two.URL}, []string{good(two)}},
		"DeadAll": {"each address is tried once", []string{unreachable, unreachable}, []string{"failed", "failed"}},
		"Empty":   {"a load balancer without backends answers 502, and the caller retries", []string{empty.URL, two.URL}, []string{"502 " + empty.Listener.Addr().String() + " text", good(two)}},
		"Around":  {"an unreachable further address is not used", []string{one.URL, unreachable}, []string{good(one)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := client(t, tc.addresses[0], tc.addresses[1:]...)
			for i, want := range tc.want {
				code, body, err := ask(t.Context())
				got := fmt.Sprint(code, " ", body)
				if err != nil {
					got = "failed"
				}
				if got != want {
					t.Errorf("%s: request %d: got %q (%v), want %q", tc.reason, i+1, got, err, want)
				}
			}
		})
	}
}

// A request that its caller cancels does not change the address.
func TestGivingUpKeepsTheAddress(t *testing.T) {
	t.Parallel()
	one, two := hub(t, http.StatusOK), hub(t, http.StatusOK)
	ask := client(t, one.URL, two.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := ask(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want cancelled", err)
	}
	if _, body, err := ask(t.Context()); err != nil || !strings.HasPrefix(body, one.Listener.Addr().String()) {
		t.Errorf("got %q, %v, want the first address", body, err)
	}
}

// An aggregated API that is unavailable says nothing about its API server: an upgrade keeps the address.
func TestUpgradeKeepsTheAddress(t *testing.T) {
	t.Parallel()
	one, two := hub(t, http.StatusServiceUnavailable), hub(t, http.StatusOK)
	config := &rest.Config{Host: one.URL, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	if err := join.AddAddresses(config, []string{two.URL}); err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, one.URL, strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Upgrade", "any")
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("got %s, want the answer of the first address", answer.Status)
		}
	}
}

func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, address string }{
		"Plain": {"a token must be sent over TLS only", "http://hub.example.com"},
		"Path":  {"requests use the path of the first address", "https://hub.example.com/hub"},
		"Name":  {"the scheme is missing", "hub.example.com:6443"},
		"Empty": {"an empty address comes from a superfluous comma", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := join.AddAddresses(&rest.Config{Host: unreachable}, []string{tc.address})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", tc.address)) {
				t.Errorf("%s: got %v, want an error that names the address", tc.reason, err)
			}
		})
	}
}
