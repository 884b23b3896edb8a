// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Disruption is what becomes of a request on its way through a Proxy.
type Disruption struct {
	// Fault is the kind; a client sees a broken connection, as after a crash.
	Fault Fault
	// Delay is how late the request is; of one that arrives twice, its second time.
	Delay time.Duration
}

// RandomFaults draws mishaps: each kind for percent of the writes, reads are only lost and
// delayed; delays are below most. Equal seeds draw equal mishaps.
func RandomFaults(seed uint64, percent int, most time.Duration) func(*http.Request) Disruption {
	kinds := []Fault{LoseRequest, LoseReply, Late, Twice, LateTwice}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, seed))
	return func(req *http.Request) Disruption {
		mu.Lock()
		defer mu.Unlock()
		m := Disruption{Delay: time.Duration(r.Int64N(int64(most) + 1))}
		if n := r.IntN(100); n < len(kinds)*percent {
			m.Fault = kinds[n/percent]
		}
		if req.Method == http.MethodGet && m.Fault > LoseReply {
			m.Fault = Pass
		}
		if m.Fault == Pass && r.IntN(100) >= percent {
			m.Delay = 0 // most requests meet nothing at all
		}
		return m
	}
}

// Proxy is a bad network between clients and the API server: a server of its own, so
// that what it breaks are connections. It forwards whole requests and replies, and so
// no watches.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	upstream http.RoundTripper
	target   *url.URL
	choose   func(*http.Request) Disruption
	delayed  delayedRequests
}

func newProxy(ctx context.Context, config *rest.Config, choose func(*http.Request) Disruption) (*Proxy, error) {
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

// WaitDelayed waits until all late requests have reached the API server.
func (p *Proxy) WaitDelayed() { p.delayed.wait() }

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
		closeConnection(w)
	case Late:
		p.delayed.schedule(hit.Delay, again)
		closeConnection(w)
	case LateTwice:
		p.delayed.schedule(0, again)
		p.delayed.schedule(hit.Delay, again)
		closeConnection(w)
	case Twice:
		p.delayed.schedule(hit.Delay, again)
		p.respond(w, r, body, Disruption{})
	case Pass, LoseReply:
		p.respond(w, r, body, hit)
	}
}

// respond passes a request on and its reply back, if that is not lost.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request, body []byte, hit Disruption) {
	select {
	case <-time.After(hit.Delay):
	case <-r.Context().Done():
		return
	}
	reply, err := p.forward(r, body)
	if err != nil || hit.Fault == LoseReply {
		closeConnection(w)
		return
	}
	maps.Copy(w.Header(), reply.header)
	w.WriteHeader(reply.status)
	_, _ = w.Write(reply.body) // an error says that the client is gone
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

// reply is an answer of the API server, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// closeConnection ends the client's connection without an answer.
func closeConnection(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// delayedRequests are requests that reach the API server after their callers gave up.
type delayedRequests struct {
	mu      sync.Mutex
	pending []chan struct{} // each closed when its request is through
}

// schedule makes a request after a while.
func (l *delayedRequests) schedule(delay time.Duration, request func()) {
	done := make(chan struct{})
	l.mu.Lock()
	l.pending = append(l.pending, done)
	l.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(delay)
		request()
	}()
}

// wait returns when none is left. More may come meanwhile, which a WaitGroup would not
// allow.
func (l *delayedRequests) wait() {
	for {
		l.mu.Lock()
		done := l.pending
		l.pending = nil
		l.mu.Unlock()
		if len(done) == 0 {
			return
		}
		for _, d := range done {
			<-d
		}
	}
}
