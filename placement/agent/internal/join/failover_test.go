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

// nobody is an address where nobody listens.
const nobody = "https://127.0.0.1:1"

// hub is a server that answers with what it was asked.
func hub(t *testing.T, code int) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "%s %s", r.Host, body) // the client sees what is missing
	}))
	t.Cleanup(s.Close)
	return s
}

// client asks as the agent does.
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
		want      []string // of requests, one after the other
	}{
		"One":     {"a single address is asked again and again", []string{nobody}, []string{"failed", "failed"}},
		"First":   {"the next is for when the first fails", []string{one.URL, two.URL}, []string{good(one), good(one)}},
		"Dead":    {"what was not sent is sent to the next at once, whole", []string{nobody, two.URL}, []string{good(two), good(two)}},
		"DeadTwo": {"more than one may be dead", []string{nobody, nobody + "1", two.URL}, []string{good(two)}},
		"DeadAll": {"each is tried once", []string{nobody, nobody}, []string{"failed", "failed"}},
		"Empty":   {"a balancer without servers answers for itself; who asks repeats", []string{empty.URL, two.URL}, []string{"502 " + empty.Listener.Addr().String() + " text", good(two)}},
		"Around":  {"after the last comes the first", []string{one.URL, nobody}, []string{good(one)}},
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

// Who gives up has not found an address to be dead.
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

func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, address string }{
		"Plain": {"a token goes over TLS only", "http://hub.example.com"},
		"Path":  {"requests keep the path of the first", "https://hub.example.com/hub"},
		"Name":  {"a slip", "hub.example.com:6443"},
		"Empty": {"a comma too many", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := join.AddAddresses(&rest.Config{Host: nobody}, []string{tc.address})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", tc.address)) {
				t.Errorf("%s: got %v, want an error that names the address", tc.reason, err)
			}
		})
	}
}
