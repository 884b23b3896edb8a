// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// Limits of open connections.
const (
	// maxConnections limits the connections of all clients; further ones wait.
	maxConnections = 256
	// maxConnectionsPerClient limits those of one address; further ones are closed. A scraper has
	// one or two.
	maxConnectionsPerClient = 32
)

// boundedListener limits connections, so that a client without a token can neither exhaust the
// program's memory nor, alone, use up the connections that others need.
type boundedListener struct {
	net.Listener

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newBoundedListener(l net.Listener) *boundedListener {
	return &boundedListener{Listener: netutil.LimitListener(l, maxConnections), open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if l.acquire(client.Addr()) {
			return &countedConn{Conn: c, release: sync.OnceFunc(func() { l.release(client.Addr()) })}, nil
		}
		_ = c.Close()
	}
}

func (l *boundedListener) acquire(client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= maxConnectionsPerClient {
		return false
	}
	l.open[client]++
	return true
}

func (l *boundedListener) release(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
