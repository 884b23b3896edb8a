// SPDX-License-Identifier: Apache-2.0

package debugproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// waitTimeout is how long something may take on a busy machine.
const waitTimeout = time.Minute

// replicas are a hub, whose API server chooses one of its replicas in turn.
type replicas struct {
	mu       sync.Mutex
	names    []string
	turn     int
	sessions map[string]*tunnel.Session
	refused  int // attempts of an agent that was attached already
}

// ServeHTTP implements http.Handler.
func (h *replicas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	name := h.names[h.turn%len(h.names)]
	h.turn++
	h.mu.Unlock()
	w.Header().Set(tunnel.ReplicaHeader, name)
	switch {
	case r.URL.Path != "/apis/debug.placement.patchbay.io/v1alpha1/clusters/east/attach" || tunnel.UpgradeOf(r.Header) != tunnel.Protocol:
		http.NotFound(w, r)
	case slices.Contains(strings.Split(r.Header.Get(tunnel.AttachedHeader), ","), name):
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refused++
		w.WriteHeader(http.StatusConflict)
	default:
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", tunnel.Protocol, tunnel.ReplicaHeader, name)
		session, err := tunnel.NewSession(context.WithoutCancel(r.Context()), &readAhead{conn, buffered.Reader})
		if err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sessions[name] = session
	}
}

// readAhead is a connection of which the server has read something.
type readAhead struct {
	net.Conn

	reader *bufio.Reader
}

// Read implements net.Conn.
func (c *readAhead) Read(p []byte) (int, error) { return c.reader.Read(p) }

func (h *replicas) session(name string) *tunnel.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[name]
}

// run attaches an agent to the hub until the test ends.
func run(t *testing.T, h *replicas, cluster http.HandlerFunc) {
	t.Helper()
	hub, local := httptest.NewTLSServer(h), httptest.NewTLSServer(cluster)
	t.Cleanup(hub.Close)
	t.Cleanup(local.Close)
	insecure := rest.TLSClientConfig{Insecure: true}
	a, err := New(Config{
		Cluster: "east", Hub: &rest.Config{Host: hub.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{"http/1.1"}}},
		Local: &rest.Config{Host: local.URL, TLSClientConfig: insecure, BearerToken: "agent"},
		CheckPlaced: func(_ context.Context, p debugpath.Placed) error {
			if p.Namespace != "web" || p.Pod == "db" || p.Service == "db" {
				return errors.New("nothing is placed there")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); g.Wait() })
}

// eventually waits until check is true.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !check(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, waitTimeout)
		}
	}
}

// The agent attaches to each replica once, and again to one whose connection has ended.
func TestAttachToEachReplica(t *testing.T) {
	t.Parallel()
	h := &replicas{names: []string{"a", "b"}, sessions: map[string]*tunnel.Session{}}
	run(t, h, func(http.ResponseWriter, *http.Request) {})
	eventually(t, "a connection to each", func() bool { return h.session("a") != nil && h.session("b") != nil })
	eventually(t, "a further attempt", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.refused > 0 })
	first := h.session("a")
	_ = first.Close()
	eventually(t, "a new connection", func() bool { return h.session("a") != first })
}

// An agent that knows all replicas asks more and more rarely, and soon again after a failure.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace()
	for i := range settledAfter - 1 {
		if got := p.next(true); got > 2*maxInterval {
			t.Fatalf("answer %d of a known replica: got %s", i, got)
		}
	}
	for range 3 {
		if got := p.next(true); got < settledInterval || got > 2*settledInterval {
			t.Errorf("settled: got %s, want %s and more", got, settledInterval)
		}
	}
	if got := p.next(false); got < maxInterval || got > 2*maxInterval {
		t.Errorf("after a failure: got %s, want %s and more", got, maxInterval)
	}
	if got := newPace().next(true); got > 2*minInterval {
		t.Errorf("after a connection: got %s", got)
	}
}

// Only a conflict with a replica that the agent is attached to is no error.
func TestDialConflict(t *testing.T) {
	t.Parallel()
	for replica, want := range map[string]bool{"known": true, "other": false, "": false} {
		hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(tunnel.ReplicaHeader, replica)
			w.WriteHeader(http.StatusConflict)
		}))
		t.Cleanup(hub.Close)
		a, err := New(Config{Cluster: "east", Hub: &rest.Config{Host: hub.URL}, Local: &rest.Config{Host: hub.URL}})
		if err != nil {
			t.Fatal(err)
		}
		a.add("known")
		if conn, _, err := a.dial(t.Context()); conn != nil || (err == nil) != want {
			t.Errorf("a conflict with the replica %q: got %v", replica, err)
		}
	}
}

// A request reaches the cluster as the user, without any header that names another one, or not at all.
func TestProxy(t *testing.T) {
	t.Parallel()
	h := &replicas{names: []string{"a"}, sessions: map[string]*tunnel.Session{}}
	run(t, h, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/web/pods/moved":
			http.Redirect(w, r, "https://evil.example", http.StatusFound)
		case "/api/v1/namespaces/web/pods/large":
			w.Header().Set("ETag", strings.Repeat("x", 2*tunnel.MaxHeaderBytes))
		case "/api/v1/namespaces/web/pods/stranger":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Set-Cookie", "a=b")
			_, _ = fmt.Fprintf(w, "%s as %s of %v, impersonated extra %q uid %q remote %q credential %s, query %s", r.URL.Path, r.Header.Get("Impersonate-User"), r.Header.Values("Impersonate-Group"),
				r.Header.Get("Impersonate-Extra-Scopes"), r.Header.Get("Impersonate-Uid"), r.Header.Get("X-Remote-User"), r.Header.Get("Authorization"), r.URL.RawQuery)
		}
	})
	eventually(t, "a connection", func() bool { return h.session("a") != nil })
	const pods = "/api/v1/namespaces/web/pods"
	cases := map[string]struct {
		reason, method, path string
		header               http.Header
		code                 int
		want                 string
	}{
		"User": {"the user is named with the prefix", "GET", pods + "?limit=1", http.Header{}, 200,
			`pods as patchbay:ann of [patchbay:users], impersonated extra "" uid "" remote "" credential Bearer agent, query limit=1`},
		"Smuggled": {"headers of a client are dropped", "GET", pods, http.Header{
			"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Extra-Scopes": {"all"}, "Impersonate-Uid": {"1"},
			"X-Remote-User": {"admin"}, "Authorization": {"Bearer stolen"},
		}, 200, `as patchbay:ann of [patchbay:users], impersonated extra "" uid "" remote "" credential Bearer agent`},
		"NoUser":     {"each request has a user", "GET", pods, http.Header{tunnel.UserHeader: nil}, 403, "must name a user"},
		"TwoUsers":   {"it has one", "GET", pods, http.Header{tunnel.UserHeader: {"ann", "root"}}, 403, "must name a user"},
		"Within":     {"the user may reach one namespace", "GET", pods, http.Header{tunnel.NamespaceHeader: {"shop"}}, 403, "namespace must be shop"},
		"Secrets":    {"the hub may have forgotten to check", "GET", "/api/v1/namespaces/web/secrets", http.Header{}, 403, "secrets and tokens"},
		"Escaped":    {"the hub may have forgotten to check", "GET", "/api/v1/namespaces/web/%73ecrets", http.Header{}, 403, "no escapes"},
		"NotPlaced":  {"only what is placed", "GET", "/api/v1/namespaces/default/pods", http.Header{}, 403, "nothing is placed"},
		"Log":        {"the output of another Pod", "GET", pods + "/db/log", http.Header{}, 403, "nothing is placed"},
		"Exec":       {"a shell in another Pod", "POST", pods + "/db/exec", http.Header{}, 403, "nothing is placed"},
		"Service":    {"the ports of others", "GET", "/api/v1/namespaces/web/services/db:80/proxy/", http.Header{}, 403, "nothing is placed"},
		"Redirect":   {"a client would follow it with its credentials for the hub", "GET", pods + "/moved", http.Header{}, 500, "redirection"},
		"Header":     {"it fills the agent's memory", "GET", pods + "/large", http.Header{}, 500, "exceeded"},
		"Credential": {"a client would ask its user for another credential", "GET", pods + "/stranger", http.Header{}, 500, "does not accept the agent"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://agent"+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(tunnel.UserHeader, "ann")
			maps.Copy(r.Header, tc.header)
			response, err := h.session("a").RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != tc.code || !strings.Contains(string(text), tc.want) || response.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s: got %s %s, want %d %q", tc.reason, response.Status, text, tc.code, tc.want)
			}
		})
	}
}

// The agent answers at most MaxStreams requests at a time, over all connections.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	h := &replicas{names: []string{"a"}, sessions: map[string]*tunnel.Session{}}
	run(t, h, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	eventually(t, "a connection", func() bool { return h.session("a") != nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range tunnel.MaxStreams + 1 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/api/v1/namespaces/web/pods?watch=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(tunnel.UserHeader, "ann")
		response, err := h.session("a").RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		want := http.StatusOK
		if i == tunnel.MaxStreams {
			want = http.StatusTooManyRequests
		}
		if response.StatusCode != want {
			t.Errorf("request %d: got %s, want %d", i, response.Status, want)
		}
	}
}
