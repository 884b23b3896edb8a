// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// waitTimeout is how long something may take on a busy machine.
const waitTimeout = 2 * time.Minute

// Streams whose readers take nothing do not stop another one, at either end.
func TestStalledReaders(t *testing.T) {
	t.Parallel()
	filled := make(chan struct{}, 2*MaxStreams)
	agentEnd, hubEnd := tcpPair(t)
	session, err := NewSession(t.Context(), hubEnd)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	go func() {
		_ = Serve(t.Context(), agentEnd, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/answer": // of which the hub reads nothing
				_, _ = io.Copy(w, &filler{filled: filled})
			case "/request": // of which the agent reads nothing
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			default:
				_, _ = io.Copy(w, r.Body)
			}
		}))
	}()
	for _, path := range []string{"/answer", "/request"} {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		for i := range MaxStreams - 1 {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if path == "/request" {
				r.Body, r.ContentLength = io.NopCloser(&filler{filled: filled}), -1
			}
			response, err := session.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			select {
			case <-filled:
			case <-ctx.Done():
				t.Fatalf("%s: stream %d does not get a window of its own", path, i)
			}
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/echo", strings.NewReader("pong"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := session.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err != nil || string(text) != "pong" {
			t.Errorf("%s: one more request got %q, %v", path, text, err)
		}
		_ = response.Body.Close()
		cancel()
	}
}

// filler reads zeros for ever, and reports once when a stream's window is full.
type filler struct {
	filled chan<- struct{}
	read   int
}

// Read implements io.Reader.
func (f *filler) Read(p []byte) (int, error) {
	if f.read <= streamWindow && f.read+len(p) > streamWindow {
		f.filled <- struct{}{}
	}
	f.read += len(p)
	return len(p), nil
}

// A stream ends when its client takes nothing while data waits, and the hub's log has the reason.
func TestClientTakesNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"Answer":  "GET /east/flood HTTP/1.1\r\nHost: hub\r\n\r\n",
		"Upgrade": "GET /east/flood HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP2":   "",
		"Refused": "GET /east/flood?refuse=1 HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	}
	for name, request := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			b := newBenchWithTimeout(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				flood(w, r)
			}), time.Second)
			if request == "" { // as most API servers ask
				hub := b.http2(t)
				response, err := hub.Client().Get(hub.URL + "/east/flood")
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
			} else {
				defer b.send(t, request).Close()
			}
			select {
			case <-ended:
			case <-time.After(waitTimeout):
				t.Fatal("the stream has not ended")
			}
			if line := <-b.logged; !strings.Contains(line, "took nothing") || !strings.Contains(line, `"path"="/flood"`) {
				t.Errorf("got the log %s", line)
			}
		})
	}
}

// http2 starts a server of the same hub that speaks HTTP/2.
func (b *bench) http2(t *testing.T) *httptest.Server {
	t.Helper()
	hub := httptest.NewUnstartedServer(b.hub.Config.Handler)
	hub.EnableHTTP2 = true
	hub.StartTLS()
	t.Cleanup(hub.Close)
	return hub
}

// send sends a request without reading the answer.
func (b *bench) send(t *testing.T, request string) net.Conn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(b.hub.Certificate())
	conn, err := tls.Dial("tcp", b.hub.Listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// flood answers, or upgrades to, bytes for ever.
func flood(w http.ResponseWriter, r *http.Request) {
	zeros := &filler{filled: make(chan struct{}, 1)}
	if UpgradeOf(r.Header) == "" || r.URL.Query().Has("refuse") {
		_, _ = io.Copy(w, zeros)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(struct{ io.Writer }{conn}, zeros)
}

// A stream may be silent for longer than its client may take nothing.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	b := newBenchWithTimeout(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var to io.Writer = w
		flush := http.NewResponseController(w).Flush
		if UpgradeOf(r.Header) != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			to, flush = conn, func() error { return nil }
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		}
		for _, word := range []string{"one ", "two"} {
			_, _ = io.WriteString(to, word)
			_ = flush()
			<-time.After(2 * timeout) // silent
		}
	}), timeout)
	http2 := b.http2(t)
	cases := map[string]struct {
		hub    *httptest.Server
		header http.Header
	}{
		"Answer":  {b.hub, http.Header{}},
		"HTTP2":   {http2, http.Header{}},
		"Upgrade": {b.hub, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.hub.URL+"/east/words", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = tc.header
			response, err := tc.hub.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			got := make([]byte, len("one two"))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != "one two" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
