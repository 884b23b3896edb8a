// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// writeGate is a proxy between a daemon and the API server. While it is closed, it blocks writes.
type writeGate struct {
	next http.Handler
	mu   sync.Mutex
	// open is a closed channel while the gate is open.
	open chan struct{}
	// blocked has the writes that were blocked.
	blocked []string
	// onRequest is called for each request. It may be nil.
	onRequest func()
}

// newWriteGate starts an open gate, and directs the node's daemon through it.
func (n *node) newWriteGate() *writeGate {
	n.t.Helper()
	transport, err := rest.TransportFor(n.env.Config)
	if err != nil {
		n.t.Fatal(err)
	}
	target, err := url.Parse(n.env.Config.Host)
	if err != nil {
		n.t.Fatal(err)
	}
	g := &writeGate{open: make(chan struct{}), next: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, // watches
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	close(g.open)
	server := httptest.NewServer(g)
	n.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	n.useServer(server.URL)
	return g
}

// useServer writes a kubeconfig for a proxy that has the credentials.
func (n *node) useServer(address string) {
	n.t.Helper()
	cfg, err := clientcmd.LoadFromFile(n.path("kubeconfig"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server, cluster.CertificateAuthorityData, cluster.CertificateAuthority = address, nil, ""
	}
	for _, user := range cfg.AuthInfos {
		user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData = "", nil, "", nil
	}
	if err := clientcmd.WriteToFile(*cfg, n.path("kubeconfig")); err != nil {
		n.t.Fatal(err)
	}
}

// ServeHTTP implements http.Handler.
func (g *writeGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	onRequest := g.onRequest
	g.mu.Unlock()
	if onRequest != nil {
		onRequest()
	}
	if r.Method != http.MethodGet {
		if err := g.wait(r); err != nil {
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// setOnRequest sets the function that is called for each request.
func (g *writeGate) setOnRequest(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onRequest = f
}

// wait waits until the gate is open.
func (g *writeGate) wait(r *http.Request) error {
	g.mu.Lock()
	open := g.open
	select {
	case <-open:
	default:
		g.blocked = append(g.blocked, r.Method+" "+r.URL.Path)
	}
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
}

// close blocks writes until the returned function is called.
func (g *writeGate) close() (reopen func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.open, g.blocked = closed, nil
	return sync.OnceFunc(func() { close(closed) })
}

// hasBlocked reports whether a write to a path with this part was blocked.
func (g *writeGate) hasBlocked(part string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.blocked, func(w string) bool { return strings.Contains(w, part) })
}

// metric reads a metric of the daemon.
func (n *node) metric(ctx context.Context, name string) (float64, error) {
	text, err := n.scraper.Metrics(ctx, n.metrics)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// expectMetric fails the test when a metric has another value.
func (n *node) expectMetric(t *testing.T, name string, want float64) {
	t.Helper()
	if got, err := n.metric(t.Context(), name); err != nil || got != want {
		t.Errorf("%s: got %v and error %v, want %v", name, got, err, want)
	}
}
