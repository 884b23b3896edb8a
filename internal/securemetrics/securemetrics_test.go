// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationapi "k8s.io/api/authentication/v1"
	authorizationapi "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// reviewer is a fake API server that knows the tokens "reader" and "stranger". The first one may
// get /metrics.
type reviewer struct {
	asked atomic.Int32
	down  atomic.Bool
	// revoked is set when "reader" has lost its right.
	revoked atomic.Bool
}

func newReviewer(t *testing.T) (*reviewer, *rest.Config) {
	t.Helper()
	r := &reviewer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, req *http.Request) {
		o := &authenticationapi.TokenReview{}
		if r.refuses(w) || !decode(t, req, o) {
			return
		}
		o.Status.Authenticated = o.Spec.Token == "reader" || o.Spec.Token == "stranger"
		o.Status.User.Username = o.Spec.Token
		o.Status.User.Extra = map[string]authenticationapi.ExtraValue{"pod": {"p"}}
		encode(t, w, o)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, req *http.Request) {
		o := &authorizationapi.SubjectAccessReview{}
		if r.refuses(w) || !decode(t, req, o) {
			return
		}
		what := o.Spec.NonResourceAttributes
		o.Status.Allowed = o.Spec.User == "reader" && !r.revoked.Load() &&
			what.Path == "/metrics" && what.Verb == "get" && o.Spec.Extra["pod"][0] == "p"
		encode(t, w, o)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return r, &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (r *reviewer) refuses(w http.ResponseWriter) bool {
	r.asked.Add(1)
	if r.down.Load() {
		w.WriteHeader(http.StatusBadGateway)
	}
	return r.down.Load()
}

func decode(t *testing.T, req *http.Request, o runtime.Object) bool {
	t.Helper()
	err := json.NewDecoder(req.Body).Decode(o)
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

func encode(t *testing.T, w http.ResponseWriter, o runtime.Object) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(o); err != nil {
		t.Error(err)
	}
}

// serving runs a server until the test ends, and returns its address.
func serving(t *testing.T, o Options, cfg *rest.Config) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "patchbay_secret", Help: "Not for everyone."}))
	o.Address = "127.0.0.1:0"
	s, err := Listen(o, cfg, registry, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "https://" + s.Address().String()
}

func TestServer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, method, path, authorization string
		profiles, down                      bool
		want                                int
	}{
		"Reader":      {reason: "The ServiceAccount has the role.", path: "/metrics", authorization: "Bearer reader", want: 200},
		"LowerCase":   {reason: "The scheme is case-insensitive (RFC 9110).", path: "/metrics", authorization: "bearer reader", want: 200},
		"Anonymous":   {reason: "A Pod that reaches the node has no right to metrics.", path: "/metrics", want: 401},
		"Basic":       {reason: "Only bearer tokens are accepted.", path: "/metrics", authorization: "Basic reader", want: 401},
		"MadeUp":      {reason: "The API server does not know the token.", path: "/metrics", authorization: "Bearer made-up", want: 401},
		"NoRole":      {reason: "Every Pod has a token; it must have the role too.", path: "/metrics", authorization: "Bearer stranger", want: 403},
		"OtherPath":   {reason: "The role is for one path.", path: "/metrics/", authorization: "Bearer reader", want: 403},
		"Profiles":    {reason: "Profiles need a right of their own.", path: "/debug/pprof/heap", authorization: "Bearer reader", profiles: true, want: 403},
		"NoProfiles":  {reason: "The answer must not tell an unknown client whether profiles are served.", path: "/debug/pprof/heap", want: 401},
		"Write":       {reason: "Metrics are read-only.", method: http.MethodPost, path: "/metrics", authorization: "Bearer reader", want: 405},
		"Unreachable": {reason: "Without an answer of the API server nothing is allowed.", path: "/metrics", authorization: "Bearer reader", down: true, want: 503},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, cfg := newReviewer(t)
			api.down.Store(tc.down)
			address := serving(t, Options{Profiles: tc.profiles}, cfg)
			req, err := http.NewRequestWithContext(t.Context(), tc.method, address+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", tc.authorization)
			res, err := insecure().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != tc.want {
				t.Errorf("%s: got status %d %s, want %d", tc.reason, res.StatusCode, body, tc.want)
			}
			if got := strings.Contains(string(body), "patchbay_secret"); got != (tc.want == 200) {
				t.Errorf("%s: status %d with metrics: %v", tc.reason, res.StatusCode, got)
			}
		})
	}
}

func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
}

// reviewsAt returns an authorizer with a fake API server, and its clock.
func reviewsAt(t *testing.T) (*reviewer, *authorizer, *time.Time) {
	t.Helper()
	api, cfg := newReviewer(t)
	r, err := newAuthorizer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r.now = func() time.Time { return now }
	return api, r, &now
}

// A permission is remembered for a while, and longer while the API server is unreachable.
func TestPermissionsAge(t *testing.T) {
	t.Parallel()
	api, r, now := reviewsAt(t)
	expect := func(when string, asked int32, code int) {
		t.Helper()
		before := api.asked.Load()
		err := r.authorize(t.Context(), "192.0.2.1", "reader", "/metrics")
		got := http.StatusOK
		var d denial
		switch {
		case errors.As(err, &d):
			got = d.code
		case err != nil:
			got = http.StatusServiceUnavailable
		}
		if n := api.asked.Load() - before; got != code || n != asked {
			t.Errorf("%s: got %d (%v) after %d requests, want %d after %d", when, got, err, n, code, asked)
		}
	}
	expect("first", 2, 200)
	expect("again", 0, 200)
	*now = now.Add(authorizedTTL)
	expect("after its time", 2, 200)
	api.down.Store(true)
	*now = now.Add(authorizedTTL)
	expect("while the API server is unreachable", 1, 200)
	*now = now.Add(authorizedTTLUnreachable)
	expect("while it is unreachable for long", 1, 503)
	api.down.Store(false)
	expect("when it is back", 2, 200)
	api.revoked.Store(true)
	*now = now.Add(authorizedTTL)
	expect("after the role was taken away", 2, 403)
	api.down.Store(true)
	expect("a denial ends the permission, whatever the API server does later", 1, 503)
}

// Clients with invented tokens use up only their own limit. They can neither keep a revoked token
// alive nor lock out a client that was allowed before.
func TestFloodOfMadeUpTokens(t *testing.T) {
	t.Parallel()
	api, r, now := reviewsAt(t)
	var err error
	if err := r.authorize(t.Context(), "192.0.2.1", "reader", "/metrics"); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(authorizedTTL)
	for i := range 1000 { // from everywhere
		err = r.authorize(t.Context(), fmt.Sprint("2001:db8::", i), fmt.Sprint("made-up-", i), "/metrics")
	}
	if !errors.Is(err, errTooManyReviews) || api.asked.Load() > 2+reviewsPerSecond {
		t.Fatalf("after a flood: got %v and %d requests to the API server, want %v after %d", err, api.asked.Load(), errTooManyReviews, reviewsPerSecond)
	}
	if err := r.authorize(t.Context(), "192.0.2.1", "reader", "/metrics"); err != nil {
		t.Errorf("a client that was allowed before: got %v", err)
	}
	*now = now.Add(authorizedTTL)
	api.revoked.Store(true)
	for range 2 * reviewsPerSecond {
		_ = r.authorize(t.Context(), "192.0.2.1", "made-up", "/metrics")
	}
	var d denial
	if err := r.authorize(t.Context(), "192.0.2.1", "reader", "/metrics"); !errors.As(err, &d) || d.code != http.StatusForbidden {
		t.Errorf("a token that was revoked, during a flood: got %v, want 403", err)
	}
}

// A client with invented tokens must not keep other clients from their first review, as all need
// one after a restart of the program.
func TestFloodOfOneClient(t *testing.T) {
	t.Parallel()
	api, r, _ := reviewsAt(t)
	var err error
	for range 1000 {
		err = r.authorize(t.Context(), "192.0.2.66", "made-up", "/metrics")
	}
	if !errors.Is(err, errTooManyReviews) || api.asked.Load() > reviewsPerClient {
		t.Fatalf("after a flood: got %v and %d requests to the API server, want %v after %d", err, api.asked.Load(), errTooManyReviews, reviewsPerClient)
	}
	other := "192.0.2.1"
	for i := 2; r.clientLimiter(other) == r.clientLimiter("192.0.2.66"); i++ { // one in 256
		other = fmt.Sprint("192.0.2.", i)
	}
	if err := r.authorize(t.Context(), other, "reader", "/metrics"); err != nil {
		t.Errorf("a client at another address: got %v", err)
	}
}

// A client over the limit gets Retry-After, and its connection is closed.
func TestBusyAnswer(t *testing.T) {
	t.Parallel()
	_, cfg := newReviewer(t)
	address := serving(t, Options{}, cfg)
	reusing := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for range 1000 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer made-up")
		res, err := reusing.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if !res.Close {
			t.Fatalf("status %d keeps the connection open", res.StatusCode)
		}
		if res.StatusCode == http.StatusTooManyRequests {
			if res.Header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
			return
		}
	}
	t.Error("1000 made-up tokens were all reviewed")
}

// A client with silent connections locks out no other client.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bound := newBoundedListener(l)
	defer bound.Close()
	accepted := make(chan string)
	go func() {
		for {
			c, err := bound.Accept() // not closed, as the client sends nothing
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			accepted <- host
		}
	}()
	dial := func(from string) {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for range 2 * maxConnections {
		dial("127.0.0.1")
	}
	dial("127.0.0.2")
	for silent := 0; ; silent++ {
		select {
		case from := <-accepted:
			if from == "127.0.0.2" {
				if silent != maxConnectionsPerClient {
					t.Errorf("a silent client has %d connections, want %d", silent, maxConnectionsPerClient)
				}
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("a client waits for the %d connections of another", silent)
		}
	}
}

// Closed connections are forgotten, so that clients use no memory.
func TestConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bound := newBoundedListener(l)
	defer bound.Close()
	for range 2 * maxConnectionsPerClient {
		out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := bound.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the server may close one twice
			_ = in.Close()
		}
		_ = out.Close()
	}
	if len(bound.open) != 0 {
		t.Errorf("%v are counted, want none", bound.open)
	}
}

// Clients with invented tokens use no memory.
func TestDenialsAreNotKept(t *testing.T) {
	t.Parallel()
	_, cfg := newReviewer(t)
	r, err := newAuthorizer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"a", "b", "stranger"} {
		if err := r.authorize(t.Context(), "192.0.2.1", token, "/metrics"); err == nil {
			t.Errorf("%s may read metrics", token)
		}
	}
	if len(r.allowed) != 0 {
		t.Errorf("%d permissions are kept, want none", len(r.allowed))
	}
}

func TestListenOptions(t *testing.T) {
	t.Parallel()
	_, cfg := newReviewer(t)
	off, err := Listen(Options{}, cfg, prometheus.NewRegistry(), logr.Discard())
	if err != nil || off.Address() != nil || off.Start(t.Context()) != nil {
		t.Errorf("without an address: got %v, want a server that does nothing", err)
	}
	_, err = Listen(Options{Address: "127.0.0.1:0", CertDir: t.TempDir()}, cfg, prometheus.NewRegistry(), logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "--metrics-cert-dir") {
		t.Errorf("with a folder without a certificate: got %v, want an error that names the flag", err)
	}
}
