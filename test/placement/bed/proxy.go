// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Proxy is an HTTP proxy that opens tunnels (CONNECT) for who knows the password, to
// addresses that it alone knows.
type Proxy struct {
	listener       net.Listener
	server         *http.Server
	user, password string
	addresses      map[string]string // the address to dial, by what clients call it

	mu      sync.Mutex
	closed  bool
	refused int
	tunnels []net.Conn
	all     sync.WaitGroup
}

// NewProxy serves the listener.
func NewProxy(listener net.Listener, user, password string, known map[string]string) *Proxy {
	p := &Proxy{listener: listener, user: user, password: password, addresses: known}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	p.all.Go(func() { _ = p.server.Serve(listener) }) // it ends with Close
	return p
}

// Address is where clients find the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// URL is the proxy's address, with the password if told.
func (p *Proxy) URL(password string) string {
	u := url.URL{Scheme: "http", User: url.UserPassword(p.user, password), Host: p.listener.Addr().String()}
	return u.String()
}

// Refused tells how many had a wrong password.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Tunnels tells how many were opened so far.
func (p *Proxy) Tunnels() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tunnels) / 2
}

// Close ends the proxy and its tunnels.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.tunnels {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
	return err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.allowed(r) {
		p.mu.Lock()
		p.refused++
		p.mu.Unlock()
		w.Header().Set("Proxy-Authenticate", `Basic realm="test"`)
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		http.Error(w, "tunnels only", http.StatusMethodNotAllowed)
		return
	}
	out, err := net.Dial("tcp", p.addresses[r.Host])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	in, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = out.Close()
		return
	}
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = errors.Join(in.Close(), out.Close())
		return
	}
	p.startTunnel(in, out, rest)
}

// startTunnel opens the tunnel, unless the proxy has ended.
func (p *Proxy) startTunnel(in, out net.Conn, read io.Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = errors.Join(in.Close(), out.Close())
		return
	}
	p.tunnels = append(p.tunnels, in, out)
	p.all.Go(func() { tunnel(out, in, read) })
	p.all.Go(func() { tunnel(in, out, out) })
}

// allowed checks the password.
func (p *Proxy) allowed(r *http.Request) bool {
	as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, ok := as.BasicAuth()
	return ok && user == p.user && password == p.password
}

// tunnel passes bytes on until either side ends, then ends both.
func tunnel(to, from net.Conn, read io.Reader) {
	_, err := io.Copy(to, read)
	_ = errors.Join(err, to.Close(), from.Close())
}
