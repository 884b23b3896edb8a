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

// gate stands between a daemon and the API server. While it is shut, reads pass and
// writes wait.
type gate struct {
	next http.Handler
	mu   sync.Mutex
	// open is closed while the gate is open.
	open chan struct{}
	// waited are the writes that had to.
	waited []string
	// meet is told of each request; nil for nobody.
	meet func()
}

// newGate makes the node's daemon go through an open gate.
func (n *node) newGate() *gate {
	n.t.Helper()
	transport, err := rest.TransportFor(n.env.Config)
	if err != nil {
		n.t.Fatal(err)
	}
	target, err := url.Parse(n.env.Config.Host)
	if err != nil {
		n.t.Fatal(err)
	}
	g := &gate{open: make(chan struct{}), next: &httputil.ReverseProxy{
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

// useServer writes a kubeconfig for another address, whose other end has the credentials.
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
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if meet := g.met(nil); meet != nil {
		meet()
	}
	if r.Method != http.MethodGet {
		if err := g.wait(r); err != nil {
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// met returns who is told of requests, after a change unless that is nil.
func (g *gate) met(change func()) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if change != nil {
		g.meet = change
	}
	return g.meet
}

// wait waits until the gate is open.
func (g *gate) wait(r *http.Request) error {
	g.mu.Lock()
	open := g.open
	select {
	case <-open:
	default:
		g.waited = append(g.waited, r.Method+" "+r.URL.Path)
	}
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
}

// shut makes writes wait from now on; the function returned lets them pass.
func (g *gate) shut() (reopen func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.open, g.waited = shut, nil
	return sync.OnceFunc(func() { close(shut) })
}

// waits reports whether a write to such a path has had to wait.
func (g *gate) waits(part string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.waited, func(w string) bool { return strings.Contains(w, part) })
}

// metric reads one of the daemon's numbers.
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

// expectMetric fails the test when a number is another one.
func (n *node) expectMetric(t *testing.T, name string, want float64) {
	t.Helper()
	if got, err := n.metric(t.Context(), name); err != nil || got != want {
		t.Errorf("%s is %v, %v, want %v", name, got, err, want)
	}
}
