// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// bench is a hub's server before a tunnel to an agent before a backend, with TLS on the outer connections.
type bench struct {
	hub     *httptest.Server
	session *Session
	agent   net.Conn
	logged  chan string // lines of the hub's log; those that no test reads are lost
}

func newBench(t *testing.T, backend http.Handler) *bench {
	t.Helper()
	return newBenchWithTimeout(t, backend, ClientTimeout)
}

func newBenchWithTimeout(t *testing.T, backend http.Handler, clientTimeout time.Duration) *bench {
	t.Helper()
	behind := httptest.NewTLSServer(backend)
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	agentEnd, hubEnd := tcpPair(t)
	session, err := NewSession(t.Context(), hubEnd)
	if err != nil {
		t.Fatal(err)
	}
	session.clientTimeout = clientTimeout
	t.Cleanup(func() { _ = session.Close() })
	logged := make(chan string, 10)
	log := funcr.New(func(_, line string) {
		select {
		case logged <- line:
		default:
		}
	}, funcr.Options{})
	go func() { _ = Serve(t.Context(), agentEnd, forwarder(target, behind.Client().Transport)) }()
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(logr.NewContext(r.Context(), log))
		answer := &Recorder{ResponseWriter: w}
		err := session.Forward(answer, r, strings.TrimPrefix(r.URL.Path, "/east"), RequestHeader(r.Header))
		switch {
		case answer.Code != 0:
		case errors.Is(err, ErrTooManyStreams):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
	t.Cleanup(hub.Close)
	return &bench{hub: hub, session: session, agent: agentEnd, logged: logged}
}

// forwarder is an agent without rules.
func forwarder(target *url.URL, transport http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(UpgradeHeader) == "" {
			u := *target
			u.Path, u.RawQuery = r.URL.Path, r.URL.RawQuery
			if err := Relay(w, r, &http.Request{URL: &u, Header: RequestHeader(r.Header)}, transport); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, target.JoinPath(r.URL.Path).String(), http.NoBody)
		if err == nil {
			out.Header = RequestHeader(r.Header)
			err = ForwardUpgrade(w, r, out, transport)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

func tcpPair(t *testing.T) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return dialed, accepted
}

// echo upgrades to a protocol that returns each byte, streams lines, or waits until the client leaves.
func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/upgrade":
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-Websocket-Accept: yes\r\nSet-Cookie: a=b\r\n\r\n", strings.ToLower(r.Header.Get("Upgrade")))
		_, _ = io.Copy(conn, buffered.Reader)
	case "/moved":
		w.Header().Set(UpgradedHeader, "websocket")
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	case "/stranger":
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	case "/forbidden":
		http.Error(w, "no", http.StatusForbidden)
	case "/wait":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/lines":
		for i := range 3 {
			_, _ = fmt.Fprintln(w, "line", i)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	default:
		_, _ = fmt.Fprint(w, r.Method, " ", r.URL.Path, "?", r.URL.RawQuery, " user=", r.Header.Get("X-Remote-User"))
	}
}

func (b *bench) get(ctx context.Context, t *testing.T, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.hub.URL+"/east"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Remote-User", "root")
	response, err := b.hub.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func (b *bench) status(t *testing.T, path string) int {
	t.Helper()
	response := b.get(t.Context(), t, path)
	defer response.Body.Close()
	return response.StatusCode
}

func TestForward(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(echo))
	pods := b.get(t.Context(), t, "/api/v1/pods?watch=true")
	defer pods.Body.Close()
	body, err := io.ReadAll(pods.Body)
	if want := "GET /api/v1/pods?watch=true user="; err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}
	for _, path := range []string{"/moved", "/stranger"} { // of a hostile agent
		r := b.get(t.Context(), t, path)
		if _ = r.Body.Close(); r.StatusCode != http.StatusBadGateway || r.Header.Get("Location")+r.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: got %s %v", path, r.Status, r.Header)
		}
	}
	streamed := b.get(t.Context(), t, "/lines")
	defer streamed.Body.Close()
	lines := bufio.NewScanner(streamed.Body)
	for i := range 3 { // the answer has not ended
		if !lines.Scan() || lines.Text() != fmt.Sprint("line ", i) {
			t.Fatalf("line %d: got %q, %v", i, lines.Text(), lines.Err())
		}
	}
}

func TestForwardUpgrade(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(echo))
	for _, protocol := range []string{"SPDY/3.1", "websocket", "WebSocket"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.hub.URL+"/east/upgrade", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", protocol)
		response, err := b.hub.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		conn, ok := response.Body.(io.ReadWriter)
		if h := response.Header; response.StatusCode != http.StatusSwitchingProtocols || !ok || h.Get("Upgrade") != protocol ||
			h.Get("Sec-WebSocket-Accept") != "yes" || h.Get("Set-Cookie") != "" || h.Get(UpgradedHeader) != "" {
			t.Fatalf("%s: got %d %v", protocol, response.StatusCode, response.Header)
		}
		sent := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB, more than a window of HTTP/2 has by default
		go func() { _, _ = io.WriteString(conn, sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != sent {
			t.Errorf("%s: %v, or the bytes differ", protocol, err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.hub.URL+"/east/forbidden", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	response, err := b.hub.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("an upgrade that is refused: got %d", response.StatusCode)
	}
}

// One request more than MaxStreams is answered with the reason, and the place of one that ends is free.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(echo))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range MaxStreams {
		response := b.get(ctx, t, "/wait")
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("got %s", response.Status)
		}
	}
	refused := b.get(t.Context(), t, "/version")
	defer refused.Body.Close()
	if text, _ := io.ReadAll(refused.Body); refused.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "100 requests") {
		t.Errorf("got %s %s", refused.Status, text)
	}
	cancel()
	for end := time.Now().Add(time.Minute); b.status(t, "/version") != http.StatusOK; {
		if time.Now().After(end) {
			t.Fatal("no place became free")
		}
	}
}

// When the agent's connection ends, the session and its streams end.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(echo))
	open := b.get(t.Context(), t, "/wait")
	defer open.Body.Close()
	_ = b.agent.Close()
	if _, err := io.ReadAll(open.Body); err == nil {
		t.Error("the stream must end with an error")
	}
	<-b.session.Closed()
	if got := b.status(t, "/version"); got != http.StatusBadGateway {
		t.Errorf("got %d", got)
	}
}

// A peer that does not answer pings is dead, although its connection is open.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	agentEnd, hubEnd := tcpPair(t)
	defer agentEnd.Close()
	go func() { _, _ = io.Copy(io.Discard, agentEnd) }()
	session, err := NewSession(t.Context(), hubEnd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-session.Closed():
	case <-time.After(10 * (PingAfter + PingTimeout)):
		t.Error("the session did not end")
	}
}

// A stream of an agent whose context ends, ends too.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	agentEnd, hubEnd := tcpPair(t)
	session, err := NewSession(t.Context(), hubEnd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		if err := Serve(ctx, agentEnd, http.HandlerFunc(echo)); err != nil {
			t.Error(err)
		}
	})
	cancel()
	g.Wait()
	<-session.Closed()
}
