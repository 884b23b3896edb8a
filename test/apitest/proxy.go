// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy is a bad network between clients and the API server: a server of its own, so
// that what it breaks are connections. It forwards whole requests and replies, and so
// no watches.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	upstream http.RoundTripper
	target   *url.URL
	choose   func(*http.Request) Mishap
	late     late
}

// Proxy starts a proxy before the API server that treats requests as choose says, which
// is called for every one, from any goroutine. It ends with the test.
func (e *Env) Proxy(tb testing.TB, choose func(*http.Request) Mishap) *Proxy {
	tb.Helper()
	p, err := newProxy(tb.Context(), e.Config, choose)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Wait()
		if err := p.server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func newProxy(ctx context.Context, config *rest.Config, choose func(*http.Request) Mishap) (*Proxy, error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext // a dialer of its own keeps it out of client-go's cache
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make proxy's transport: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open proxy's port: %w", err)
	}
	p := &Proxy{listener: listener, upstream: upstream, target: target, choose: choose}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(listener) }() // it ends with Close
	return p, nil
}

// Config returns a client configuration for requests through the proxy. They are the
// admin's, unless they impersonate somebody.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: "http://" + p.listener.Addr().String(), QPS: -1}
}

// Wait waits until all late requests have reached the API server.
func (p *Proxy) Wait() { p.late.wait() }

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	hit := p.choose(r)
	later := r.WithContext(context.WithoutCancel(r.Context()))
	again := func() { _, _ = p.forward(later, body) } // nobody hears the answer
	switch hit.Fault {
	case LoseRequest:
		cut(w)
	case Late:
		p.late.after(hit.Delay, again)
		cut(w)
	case LateTwice:
		p.late.after(0, again)
		p.late.after(hit.Delay, again)
		cut(w)
	case Twice:
		p.late.after(hit.Delay, again)
		p.answer(w, r, body, Mishap{})
	case Pass, LoseReply:
		p.answer(w, r, body, hit)
	}
}

// answer passes a request on and its reply back, if that is not lost.
func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, body []byte, hit Mishap) {
	select {
	case <-time.After(hit.Delay):
	case <-r.Context().Done():
		return
	}
	reply, err := p.forward(r, body)
	if err != nil || hit.Fault == LoseReply {
		cut(w)
		return
	}
	maps.Copy(w.Header(), reply.header)
	w.WriteHeader(reply.status)
	_, _ = w.Write(reply.body) // an error says that the client is gone
}

// reply is an answer of the API server, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// forward makes the request of the API server.
func (p *Proxy) forward(r *http.Request, body []byte) (reply, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = p.target.Scheme, p.target.Host, "", ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res, err := p.upstream.RoundTrip(out)
	if err != nil {
		return reply{}, fmt.Errorf("forward %s %s: %w", r.Method, r.URL.Path, err)
	}
	all, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return reply{}, fmt.Errorf("read reply to %s %s: %w", r.Method, r.URL.Path, err)
	}
	return reply{res.StatusCode, res.Header, all}, nil
}

// cut ends the client's connection without an answer.
func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
